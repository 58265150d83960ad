// Keys and values of all layers, in blocks of positions.
//
// A block of one kv head is a row of pages of 16 positions, the last one partly used where the block's size is no multiple
// of 16. A page holds keys [head_dim][16], so that a lane is a position, then values [16][head_dim].
#pragma once

#include <cstdint>
#include <cstring>

#include "half.h"
#include "simd.h"

namespace kernels {

constexpr int kPage = 16;

// How one number of the cache is stored.
struct SingleCache {
  using Item = float;
  static simd::Floats load(const float* p) { return simd::load(p); }
  static float store(float x) { return x; }
};
struct BfloatCache {
  using Item = uint16_t;
  static simd::Floats load(const uint16_t* p) { return simd::load_bfloat(p); }
  static uint16_t store(float x) { return to_bfloat(x); }
};

struct KvLayout {
  int block_size;
  int kv_heads;
  int head_dim;
  int item_bytes;  // 4 or 2

  int pages() const { return (block_size + kPage - 1) / kPage; }
  size_t page_items() const { return static_cast<size_t>(2) * kPage * head_dim; }
  size_t block_bytes() const { return page_items() * pages() * kv_heads * item_bytes; }
};

// Where the pages of one layer lie; block 0 is nobody's.
class KvLayer {
 public:
  KvLayer(const KvLayout& layout, uint8_t* memory) : layout_(&layout), memory_(memory) {}

  template <class Cache>
  typename Cache::Item* page(int32_t block, int kv_head, int page) const {
    const size_t index = (static_cast<size_t>(block) * layout_->kv_heads + kv_head) * layout_->pages() + page;
    return reinterpret_cast<typename Cache::Item*>(memory_) + index * layout_->page_items();
  }

  // Writes the key and the value of one position: offset within the block.
  template <class Cache>
  void write(int32_t block, int offset, int kv_head, const float* key, const float* value) const {
    const int head_dim = layout_->head_dim;
    typename Cache::Item* keys = page<Cache>(block, kv_head, offset / kPage);
    typename Cache::Item* values = keys + static_cast<size_t>(kPage) * head_dim + offset % kPage * head_dim;
    for (int i = 0; i < head_dim; i++) {
      keys[i * kPage + offset % kPage] = Cache::store(key[i]);
      values[i] = Cache::store(value[i]);
    }
  }

  uint8_t* block(int32_t index) const { return memory_ + static_cast<size_t>(index) * layout_->block_bytes(); }

  const KvLayout& layout() const { return *layout_; }

 private:
  const KvLayout* layout_;
  uint8_t* memory_;
};

}  // namespace kernels
