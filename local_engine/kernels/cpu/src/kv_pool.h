// Keys and values of all layers, in blocks of positions.
//
// A block of one kv head is a row of pages of 16 positions, the last one partly used where the block's size is no
// multiple of 16. A page holds keys, so that a lane is a position, then values, so that a lane is a dimension. Where a
// lane of 32 bits has room for two numbers, these are of neighbouring dimensions of a key, and of neighbouring positions
// of values:
//   keys [head_dim / pair][16][pair], values [16 / pair][value_dim][pair]
#pragma once

#include <cstdint>
#include <cstring>

#include "simd.h"

namespace kernels {

constexpr int kPage = 16;

// How numbers of the cache are stored, and those that they are multiplied with: as many Factors as Items.
struct SingleCache {
  using Item = float;
  using Factor = float;
  using Lanes = simd::Floats;
  static constexpr int kPair = 1;
  static Lanes load(const float* p) { return simd::load(p); }
  static Lanes first(Lanes x) { return x; }
  static simd::Floats dot(simd::Floats sums, Lanes a, const float* b) { return simd::fma(a, simd::splat(*b), sums); }
  // Returns what is stored.
  static simd::Floats store(float* p, simd::Floats x) {
    simd::store(p, x);
    return x;
  }
};
struct BfloatCache {
  using Item = uint16_t;
  using Factor = simd::Factor;
  using Lanes = simd::Pairs;
  static constexpr int kPair = 2;
  static Lanes load(const uint16_t* p) { return simd::load_pairs(p); }
  // The first of each pair, with 0 in place of the second.
  static Lanes first(Lanes x) { return simd::first_of_pairs(x); }
  static simd::Floats dot(simd::Floats sums, Lanes a, const Factor* b) { return simd::dot_pairs(sums, a, b); }
  static simd::Floats store(uint16_t* p, simd::Floats x) {
    simd::store_bfloats(p, x);
    return simd::load_bfloat(p);
  }
  static simd::Floats store(float* p, simd::Floats x) {
    uint16_t rounded[16];
    const simd::Floats result = store(rounded, x);
    simd::store(p, result);
    return result;
  }
};

// A block holds its positions of all layers, so that a short answer lies in few pages of the system's memory: with a part
// of the pool for each layer the first 16 tokens took 140 ms, as each layer's 2 MB had to be got (2026-11).
struct KvLayout {
  int block_size;
  int num_layers;
  int kv_heads;
  int head_dim;
  int value_dim;
  int item_bytes;  // 4 or 2

  int pages() const { return (block_size + kPage - 1) / kPage; }
  size_t key_items() const { return static_cast<size_t>(kPage) * head_dim; }  // of a page
  size_t value_items() const { return static_cast<size_t>(kPage) * value_dim; }
  size_t layer_bytes() const { return (key_items() + value_items()) * pages() * kv_heads * item_bytes; }
  size_t block_bytes() const { return layer_bytes() * num_layers; }
};

// Where the pages of one layer lie, from its part of the first block on; block 0 is nobody's.
class KvLayer {
 public:
  KvLayer(const KvLayout& layout, uint8_t* memory) : layout_(&layout), memory_(memory) {}

  template <class Cache>
  typename Cache::Item* page(int32_t block, int kv_head, int page) const {
    const size_t index = static_cast<size_t>(kv_head) * layout_->pages() + page;
    return reinterpret_cast<typename Cache::Item*>(part_of(block)) + index * (layout_->key_items() + layout_->value_items());
  }

  // Writes the key and the value of one position: offset within the block.
  template <class Cache>
  void write(int32_t block, int offset, int kv_head, const float* key, const float* value) const {
    constexpr int kPair = Cache::kPair;
    const int value_dim = layout_->value_dim;
    const int at = offset % kPage;
    typename Cache::Item* keys = page<Cache>(block, kv_head, offset / kPage);
    typename Cache::Item* values = keys + layout_->key_items() + at / kPair * kPair * value_dim;
    typename Cache::Item items[16];
    for (int i = 0; i < layout_->head_dim; i += 16) {
      Cache::store(items, simd::load(key + i));
      for (int j = 0; j < 16; j += kPair)
        std::memcpy(keys + (i + j) * kPage + at * kPair, items + j, kPair * sizeof items[0]);
    }
    for (int i = 0; i < value_dim; i += 16) {
      Cache::store(items, simd::load(value + i));
      for (int j = 0; j < 16; j++) values[(i + j) * kPair + at % kPair] = items[j];
    }
  }

  // layer_bytes() of a block.
  uint8_t* part_of(int32_t block) const { return memory_ + static_cast<size_t>(block) * layout_->block_bytes(); }

  const KvLayout& layout() const { return *layout_; }

 private:
  const KvLayout* layout_;
  uint8_t* memory_;
};

}  // namespace kernels
