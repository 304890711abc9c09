/*
 * What torch is told of a work besides its result: an event of its profiler, and when it ran.
 */
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <commstream/commstream.h>

namespace commstream
{

using Clock = std::chrono::steady_clock;

class Report
{
  public:
    /* Begins the profiler's event, if it is on. timed: times are wanted too. */
    void begin(c10d::OpType type, at::TensorList inputs, bool timed);
    /* The request is complete. */
    void measure(comm_request request);
    /* Ends the profiler's event. */
    void end();

    bool timed() const { return timed_; }
    c10d::OpType type() const { return type_; }
    float milliseconds() const;
    std::shared_ptr<c10d::WorkInfo> info(uint64_t sequence) const;

  private:
    c10d::OpType type_ = c10d::OpType::UNKNOWN;
    bool timed_ = false;
    Clock::time_point started_, finished_;
    std::function<void()> end_event_;
};

} // namespace commstream
