// The threads of one engine. They claim work in small pieces, and sleep where they would wait for long: between calls that
// do not follow each other at once, and for each other while somebody else has the cores.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace kernels {

class ThreadPool;

// Where threads sleep until others have done something.
class Rest {
 public:
  template <class Condition>
  void until(Condition holds) {
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(lock, holds);
    sleepers_.fetch_sub(1);
  }
  // To be called after what may have made a condition hold. A sleeper is counted before it looks, so one of the two sides
  // sees the other.
  void wake() {
    if (sleepers_.load() == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<int> sleepers_{0};
};

// The stages of one call, as one of its threads sees them. All threads go through the same stages in the same order; one
// that is late passes those that are done.
class Team {
 public:
  int member() const { return member_; }
  int size() const { return size_; }

  // Runs item(i) once for each i below count, on whatever thread comes first, and returns when all are done. Nothing that
  // other stages write may be read or written outside of items.
  template <class Item>
  void share(int count, Item&& item) {
    if (size_ == 1) {
      for (int i = 0; i < count; i++) item(i);
      return;
    }
    Stage& stage = stages_[next_stage_++];
    if (member_ == 0) call_back();
    do {
      int done = 0;
      while (!stands_aside()) {
        const int i = stage.claimed.fetch_add(1, std::memory_order_relaxed);
        if (i >= count) break;
        item(i);
        done++;
      }
      if (done > 0 && stage.done.fetch_add(done) + done == count) rest_.wake();
    } while (stage.done.load(std::memory_order_acquire) < count && !wait(stage, count));
  }

 private:
  friend class ThreadPool;
  struct alignas(64) Stage {
    std::atomic<int> claimed{0};
    std::atomic<int> done{0};
  };

  Team(ThreadPool& pool, int member, int size);

  // The first thread works alone: the others take no work.
  bool stands_aside() const { return member_ != 0 && alone_.load(std::memory_order_relaxed); }
  // Ends that, where it has been so for long enough.
  void call_back();
  // Whether the stage is done; false where there may be work again.
  bool wait(Stage& stage, int count);

  ThreadPool& pool_;
  Stage* stages_;
  std::atomic<bool>& alone_;
  Rest& rest_;
  int next_stage_ = 0;
  int member_;
  int size_;
  double start_s_ = 0;
  double stalled_s_ = 0;
};

class ThreadPool {
 public:
  // threads: the caller's included. stages: the most that a call may have.
  ThreadPool(int threads, int stages);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs call(team) on every thread that wakes in time, and returns when all work is done. One call at a time.
  //
  // Where the caller waits for much of the time, because others use the cores and a thread with work in its hands does
  // not run, the caller goes on alone for a while, in this call and the next; then all threads are tried again.
  void run(const std::function<void(Team&)>& call);

 private:
  friend class Team;
  void work(int member);

  std::vector<Team::Stage> stages_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  const std::function<void(Team&)>* call_ = nullptr;
  std::atomic<uint64_t> generation_{0};
  bool closing_ = false;
  std::atomic<int> running_{0};  // workers inside the call
  std::atomic<bool> alone_{false};
  std::atomic<bool> over_{true};
  Rest rest_;
  Rest aside_;
  double alone_until_s_ = 0;
  double alone_s_;
};

}  // namespace kernels
