/* What all who meet through a c10d store need: values that are text, and patience. */
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace commstream
{

inline std::string text_of(const std::vector<uint8_t> &bytes)
{
    return {bytes.begin(), bytes.end()};
}

inline std::vector<uint8_t> bytes_of(const std::string &text)
{
    return {text.begin(), text.end()};
}

/* A store that cannot remove keys keeps them: they do no harm. */
inline void remove_key(c10d::Store &store, const std::string &key)
{
    try {
        store.deleteKey(key);
    } catch (const std::exception &) {
    }
}

/* Between two looks into the store: naps that become longer, until a time is up. */
class Patience
{
  public:
    explicit Patience(std::chrono::milliseconds limit) : end_(Clock::now() + limit) {}
    /* False: the time is up. */
    bool nap()
    {
        std::this_thread::sleep_for(next_);
        next_ = std::min(next_ * 2, std::chrono::milliseconds(20));
        return Clock::now() < end_;
    }
    /* Something has come, so more may come soon. */
    void hope() { next_ = std::chrono::milliseconds(1); }

  private:
    using Clock = std::chrono::steady_clock;

    Clock::time_point end_;
    std::chrono::milliseconds next_{1};
};

} // namespace commstream
