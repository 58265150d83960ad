#include "thread_pool.h"

#include <chrono>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace kernels {
namespace {

// Checks before a waiting thread gives up its core: some 20 microseconds.
constexpr int kSpins = 512;
// The share of a call that its threads may wait for one that does not run.
constexpr double kMuchStalled = 0.25;
constexpr int kFewestLoneCalls = 8;
constexpr int kMostLoneCalls = 128;

void pause() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void Team::wait(Stage& stage, int count) {
  for (int i = 0; i < kSpins; i++) {
    pause();
    if (stage.done.load(std::memory_order_acquire) >= count) return;
  }
  const double start = now_s();
  while (stage.done.load(std::memory_order_acquire) < count) std::this_thread::yield();
  stalled_s_ += now_s() - start;
}

ThreadPool::ThreadPool(int threads, int stages) : stages_(stages) {
  for (int member = 1; member < threads; member++) workers_.emplace_back([this, member] { work(member); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const std::function<void(Team&)>& call) {
  const int size = size_for_next_call();
  if (size == 1) {
    Team team(stages_.data(), 0, 1);
    call(team);
    return;
  }
  for (Team::Stage& stage : stages_) {
    stage.claimed.store(0, std::memory_order_relaxed);
    stage.done.store(0, std::memory_order_relaxed);
  }
  running_.store(size - 1, std::memory_order_relaxed);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    call_ = &call;
    generation_++;
  }
  wake_.notify_all();
  const double start = now_s();
  Team team(stages_.data(), 0, size);
  call(team);
  // Nobody may still be among the stages when the next call resets them.
  const double end = now_s();
  while (running_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  const double left = now_s();
  judge(left - start, team.stalled_s_ + left - end);
}

void ThreadPool::work(int member) {
  uint64_t seen = 0;
  for (;;) {
    const std::function<void(Team&)>* call = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return closing_ || generation_ != seen; });
      if (closing_) return;
      seen = generation_;
      call = call_;
    }
    Team team(stages_.data(), member, threads());
    (*call)(team);
    running_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

int ThreadPool::size_for_next_call() {
  if (lone_calls_left_ > 0) {
    lone_calls_left_--;
    return 1;
  }
  return threads();
}

void ThreadPool::judge(double took_s, double stalled_s) {
  if (stalled_s < kMuchStalled * took_s) {
    lone_calls_ = lone_calls_ / 2;
    return;
  }
  lone_calls_ = lone_calls_ == 0 ? kFewestLoneCalls : lone_calls_ * 2;
  if (lone_calls_ > kMostLoneCalls) lone_calls_ = kMostLoneCalls;
  lone_calls_left_ = lone_calls_;
}

}  // namespace kernels
