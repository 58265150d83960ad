// Memory that grows and never shrinks, aligned to cache lines. What it held before it grew is gone.
#pragma once

#include <cstdlib>
#include <new>

namespace kernels {

template <class Item>
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(memory_); }

  // Throws std::bad_alloc.
  void reserve(size_t count) {
    if (count <= count_) return;
    std::free(memory_);
    count_ = 0;
    memory_ = std::aligned_alloc(64, (count * sizeof(Item) + 63) / 64 * 64);
    if (memory_ == nullptr) throw std::bad_alloc();
    count_ = count;
  }
  Item* data() { return static_cast<Item*>(memory_); }
  const Item* data() const { return static_cast<const Item*>(memory_); }

 private:
  void* memory_ = nullptr;
  size_t count_ = 0;
};

}  // namespace kernels
