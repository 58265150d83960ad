// Threads that share the stages of calls: part of kernels_test.cpp.

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels_test.h"
#include "thread_pool.h"

namespace kernels {
namespace {

constexpr int kStages = 24;
constexpr int kItems = 6;
constexpr int kMostCalls = 20000;

void sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// One call: every item of every stage once, and after all of the stages before. held_ms: how long threads beside the
// caller hold each item. Returns how many they had.
int run_call(ThreadPool& pool, int held_ms) {
  std::vector<std::atomic<int>> runs(kStages * kItems);
  std::atomic<int> total{0};
  std::atomic<int> by_others{0};
  pool.run([&](Team& team) {
    for (int stage = 0; stage < kStages; stage++)
      team.share(kItems, [&](int item) {
        require(total.load() >= stage * kItems, "a stage begins when those before are done");
        if (team.member() != 0) {
          by_others++;
          if (held_ms > 0) sleep(held_ms);
        }
        runs[stage * kItems + item]++;
        total++;
      });
  });
  require(total.load() == kStages * kItems, "all items ran when the call returns");
  for (const std::atomic<int>& times : runs) require(times.load() == 1, "an item runs once");
  return by_others.load();
}

}  // namespace

// Where the others keep the caller waiting it works alone, and calls them back later, in whatever stage.
void test_thread_pool() {
  ThreadPool pool(3, kStages);
  for (int call = 0; call < 20; call++) run_call(pool, 0);
  int held = 0;
  for (int call = 0; call < kMostCalls && held == 0; call++) held = run_call(pool, 12);
  require(held > 0, "others take work");
  require(held < kStages * kItems / 2, "the caller goes on alone where it waits for long");
  int back = 0;
  for (int call = 0; call < kMostCalls && back == 0; call++) back = run_call(pool, 0);
  require(back > 0, "others are called back");
}

}  // namespace kernels
