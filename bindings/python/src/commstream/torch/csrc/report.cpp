#include "report.hpp"

#include <type_traits>
#include <utility>

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

namespace commstream
{

namespace
{

/* As torch names those of its own backends. */
const char *title_of(c10d::OpType type)
{
    switch (type) {
    case c10d::OpType::BROADCAST:
        return "commstream:broadcast";
    case c10d::OpType::ALLREDUCE:
        return "commstream:all_reduce";
    case c10d::OpType::_ALLREDUCE_SPARSE:
        return "commstream:sparse_all_reduce";
    case c10d::OpType::REDUCE:
        return "commstream:reduce";
    case c10d::OpType::ALLGATHER:
        return "commstream:all_gather";
    case c10d::OpType::_ALLGATHER_BASE:
        return "commstream:_all_gather_base";
    case c10d::OpType::GATHER:
        return "commstream:gather";
    case c10d::OpType::SCATTER:
        return "commstream:scatter";
    case c10d::OpType::REDUCE_SCATTER:
        return "commstream:reduce_scatter";
    case c10d::OpType::_REDUCE_SCATTER_BASE:
        return "commstream:_reduce_scatter_base";
    case c10d::OpType::ALLTOALL:
    case c10d::OpType::ALLTOALL_BASE:
        return "commstream:all_to_all";
    case c10d::OpType::SEND:
        return "commstream:send";
    case c10d::OpType::RECV:
        return "commstream:recv";
    case c10d::OpType::RECVANYSOURCE:
        return "commstream:recvAnySource";
    case c10d::OpType::BARRIER:
        return "commstream:barrier";
    case c10d::OpType::COALESCED:
        return "commstream:coalesced";
    default:
        return "commstream:other";
    }
}

/* Both clocks are CLOCK_MONOTONIC. */
Clock::time_point point_of(uint64_t ns)
{
    return Clock::time_point(std::chrono::nanoseconds(ns));
}

/* Older torch takes times of the system's clock. */
using InfoPoint = decltype(c10d::WorkInfo::timeStarted);

template <class Point> Point in_info(Clock::time_point t)
{
    if constexpr (std::is_same_v<Point, Clock::time_point>)
        return t;
    else
        return Point::clock::now() + std::chrono::duration_cast<typename Point::duration>(t - Clock::now());
}

} // namespace

/* Another thread may end the event, in the state that this one has now. */
void Report::begin(c10d::OpType type, at::TensorList inputs, bool timed)
{
    type_ = type;
    timed_ = timed;
    if (timed)
        started_ = Clock::now();
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
    if (!callbacks)
        return;
    auto event = std::make_shared<at::RecordFunction>(std::move(*callbacks));
    event->_setAsync();
    std::vector<c10::IValue> shown(inputs.begin(), inputs.end());
    event->before(title_of(type), c10::ArrayRef<const c10::IValue>(shown.data(), shown.size()));
    end_event_ = at::wrapPropagateTLSState([event] { event->end(); });
}

/* The library has no times of what ended in the call that began it. */
void Report::measure(comm_request request)
{
    if (!timed_)
        return;
    comm_request_info info{};
    info.size = sizeof info;
    finished_ = Clock::now();
    if (!request.comm || comm_describe_request(request, &info) != COMM_OK || !info.started_ns || !info.completed_ns)
        return;
    started_ = point_of(info.started_ns);
    finished_ = point_of(info.completed_ns);
}

void Report::end()
{
    if (auto end = std::exchange(end_event_, nullptr))
        end();
}

float Report::milliseconds() const
{
    return std::chrono::duration<float, std::milli>(finished_ - started_).count();
}

std::shared_ptr<c10d::WorkInfo> Report::info(uint64_t sequence) const
{
    return std::make_shared<c10d::WorkInfo>(type_, sequence, in_info<InfoPoint>(started_), in_info<InfoPoint>(finished_),
                                            std::chrono::duration<float>(finished_ - started_));
}

} // namespace commstream
