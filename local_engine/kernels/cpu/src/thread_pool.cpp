#include "thread_pool.h"

#include <algorithm>
#include <chrono>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace kernels {
namespace {

// Checks before a waiting thread sleeps: some 20 microseconds. It does not yield, which costs a whole time slice where
// others use the cores.
constexpr int kSpins = 512;
// Checks for another call before a thread sleeps, since waking it takes as long: some 50 microseconds.
constexpr int kIdleSpins = 1024;
// How long a call may wait for threads that do not run before the caller goes on alone: a time slice of another process,
// and a share of the call.
constexpr double kStalledS = 0.004;
constexpr double kStalledShare = 0.25;
// For how long the caller then works alone: doubled each time that all threads were tried in vain.
constexpr double kShortestAloneS = 0.02;
constexpr double kLongestAloneS = 0.32;

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

Team::Team(ThreadPool& pool, int member, int size)
    : pool_(pool), stages_(pool.stages_.data()), alone_(pool.alone_), rest_(pool.rest_), member_(member), size_(size) {}

void Team::call_back() {
  if (!alone_.load(std::memory_order_relaxed)) return;
  const double now = now_s();
  if (now < pool_.alone_until_s_) return;
  alone_.store(false);
  start_s_ = now;
  stalled_s_ = 0;
  pool_.aside_.wake();
  pool_.wake_.notify_all();
}

bool Team::wait(Stage& stage, int count) {
  for (int i = 0; i < kSpins && !stands_aside(); i++) {
    pause();
    if (stage.done.load(std::memory_order_acquire) >= count) return true;
  }
  const double start = now_s();
  rest_.until([&] { return stage.done.load() >= count || stands_aside(); });
  if (member_ != 0) {
    if (stage.done.load() >= count) return true;
    pool_.aside_.until([&] { return !alone_.load() || pool_.over_.load(); });
    return false;
  }
  const double end = now_s();
  stalled_s_ += end - start;
  if (!alone_.load() && stalled_s_ > kStalledS + kStalledShare * (end - start_s_)) {
    pool_.alone_until_s_ = end + pool_.alone_s_;
    pool_.alone_s_ = std::min(2 * pool_.alone_s_, kLongestAloneS);
    alone_.store(true);
    rest_.wake();
  }
  return true;
}

ThreadPool::ThreadPool(int threads, int stages) : stages_(stages), alone_s_(kShortestAloneS) {
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
  if (workers_.empty()) {
    Team team(*this, 0, 1);
    call(team);
    return;
  }
  for (Team::Stage& stage : stages_) {
    stage.claimed.store(0, std::memory_order_relaxed);
    stage.done.store(0, std::memory_order_relaxed);
  }
  const bool together = !alone_.load(std::memory_order_relaxed);
  over_.store(false, std::memory_order_relaxed);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    call_ = &call;
    generation_++;
  }
  if (together) wake_.notify_all();
  Team team(*this, 0, threads());
  team.start_s_ = now_s();
  call(team);
  over_.store(true);
  aside_.wake();
  {
    // Who has not woken by now sleeps on.
    const std::lock_guard<std::mutex> lock(mutex_);
    call_ = nullptr;
  }
  // Nobody may still be among the stages, or hold the call, when this returns.
  for (int i = 0; i < kSpins && running_.load(std::memory_order_acquire) > 0; i++) pause();
  if (running_.load(std::memory_order_acquire) > 0) rest_.until([&] { return running_.load() == 0; });
  if (together && !alone_.load(std::memory_order_relaxed)) alone_s_ = kShortestAloneS;
}

void ThreadPool::work(int member) {
  uint64_t seen = 0;
  for (;;) {
    const std::function<void(Team&)>* call = nullptr;
    for (int i = 0; i < kIdleSpins && generation_.load(std::memory_order_relaxed) == seen; i++) pause();
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return closing_ || (generation_.load() != seen && call_ != nullptr); });
      if (closing_) return;
      seen = generation_.load();
      call = call_;
      running_.fetch_add(1, std::memory_order_relaxed);
    }
    Team team(*this, member, threads());
    (*call)(team);
    if (running_.fetch_sub(1) == 1) rest_.wake();
  }
}

}  // namespace kernels
