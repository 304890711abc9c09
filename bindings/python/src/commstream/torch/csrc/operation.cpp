#include "operation.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include "engine.hpp"

namespace commstream
{

namespace
{

bool is_dense(const at::Tensor &t)
{
    return t.is_contiguous() && !t.is_conj() && !t.is_neg();
}

/* The library's own deadline, which names the ranks that are late, comes first where the limit is not shorter. */
int64_t wait_ns(std::chrono::milliseconds limit, const World &world)
{
    return limit.count() > 0 && limit < world.deadline() ? std::chrono::nanoseconds(limit).count() : COMM_FOREVER;
}

c10d::WorkResult outcome_of(comm_result result)
{
    if (result == COMM_OK)
        return c10d::WorkResult::SUCCESS;
    return result == COMM_ERR_TIMEOUT ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR;
}

std::atomic<uint64_t> keys{0};

} // namespace

Operation::Operation(std::shared_ptr<World> w, const char *n, std::chrono::milliseconds t)
    : world(std::move(w)), name(n), timeout(t), key(keys.fetch_add(1) + 1)
{
}

void Extensions::add(std::chrono::milliseconds more)
{
    std::lock_guard<std::mutex> hold(lock_);
    active_ += more;
}

Extension::Extension(std::shared_ptr<Extensions> all) : all_(std::move(all))
{
    std::lock_guard<std::mutex> hold(all_->lock_);
    more_ = all_->active_;
    own_ = all_->active_ - all_->owned_;
    all_->owned_ = all_->active_;
}

Extension::~Extension()
{
    std::lock_guard<std::mutex> hold(all_->lock_);
    all_->owned_ -= own_;
}

void Extension::end()
{
    std::lock_guard<std::mutex> hold(all_->lock_);
    all_->active_ -= own_;
    all_->owned_ -= own_;
    own_ = std::chrono::milliseconds(0);
}

void Operation::extend(const std::shared_ptr<Extensions> &all)
{
    extension_.emplace(all);
    timeout = std::min(timeout + extension_->more(), world->deadline());
}

void Operation::use(const c10::Device &device)
{
    TORCH_CHECK_VALUE(!place || *place == device, "commstream: ", name, ": tensors on ", *place, " and on ", device,
                      "; expected one device");
    place = device;
}

void Operation::follow_stream(comm_communicator *c) const
{
    c10::DeviceGuard here(*place);
    CUstream_st *stream = native_stream(*place);
    comm_result result = until_queued(c, [&] { return comm_queue_wait_stream(c, stream); });
    TORCH_CHECK_VALUE(result != COMM_ERR_UNSUPPORTED, "commstream: ", name, ": a tensor on ", *place,
                      "; the C library does not take it: ", world->text_of(result));
    world->check(result, name);
    TORCH_CHECK_VALUE(world->sees_devices(), "commstream: ", name, ": a tensor on ", *place,
                      "; the driver was not found when the process group was made, so expected one on cpu");
}

at::Tensor Operation::input(const at::Tensor &t)
{
    use(t.device());
    at::AutoDispatchBelowADInplaceOrView plain;
    at::Tensor dense = is_dense(t) ? t : t.resolve_conj().resolve_neg().contiguous();
    keep.push_back(dense);
    return dense;
}

void Operation::check_output(const at::Tensor &t) const
{
    TORCH_CHECK_VALUE(at::has_internal_overlap(t) != at::MemOverlap::Yes, "commstream: ", name, ": a tensor of sizes ", t.sizes(),
                      " and strides ", t.strides(),
                      " as an output, whose elements share memory; expected elements apart, as clone() makes");
}

at::Tensor Operation::output(const at::Tensor &t)
{
    use(t.device());
    check_output(t);
    outputs.push_back(t);
    if (is_dense(t)) {
        keep.push_back(t);
        return t;
    }
    at::AutoDispatchBelowADInplaceOrView plain;
    at::Tensor dense = at::empty(t.sizes(), t.options());
    keep.push_back(dense);
    after.push_back([t, dense] { t.copy_(dense); });
    return dense;
}

at::Tensor Operation::in_out(const at::Tensor &t)
{
    at::Tensor dense = output(t);
    if (!dense.is_same(t)) {
        at::AutoDispatchBelowADInplaceOrView plain;
        dense.copy_(t);
    }
    return dense;
}

void Operation::absorb(Operation &part)
{
    if (part.place)
        use(*part.place);
    auto append = [](auto &to, auto &from) {
        std::move(from.begin(), from.end(), std::back_inserter(to));
        from.clear();
    };
    append(keep, part.keep);
    append(outputs, part.outputs);
    append(after, part.after);
    append(statuses, part.statuses);
    sends += part.sends;
    parts.push_back(part.key);
}

void Operation::settle(comm_result result)
{
    if (settle_quietly(result))
        tell();
}

void Operation::give_up(const char *why)
{
    take(true);
    recorded = false;
    report.measure(request);
    try {
        TORCH_CHECK(false, "commstream: ", name, ": ", why);
    } catch (...) {
        error_ = std::current_exception();
    }
    after.clear();
    keep.clear();
    leave(true);
    try {
        tell();
    } catch (const std::exception &e) { /* of what others wrote: it may not stop the exception that is under way */
        TORCH_WARN("commstream: ", name, ": what was called at its end raised: ", e.what());
    }
}

bool Operation::settle_quietly(comm_result result)
{
    take(true);
    if (settled()) {
        leave(false);
        return false;
    }
    settle_taken(result);
    return true;
}

/* Dropping and copying tensors may need the interpreter's lock, for which a caller of complete() may wait in turn. So this thread holds the
 * operation by `taken_` meanwhile, and not by `lock_`. */
bool Operation::take(bool wait)
{
    std::unique_lock<std::mutex> hold(lock_);
    if (wait)
        free_.wait(hold, [this] { return !taken_; });
    return !std::exchange(taken_, true);
}

void Operation::leave(bool settled)
{
    {
        std::lock_guard<std::mutex> hold(lock_);
        taken_ = false;
        if (settled)
            settled_.store(true, std::memory_order_release);
    }
    free_.notify_all();
}

/* The thread has taken the operation, and leaves it. */
void Operation::settle_taken(comm_result result)
{
    report.measure(request);
    outcome_ = outcome_of(result);
    try {
        world->check(result, name);
        if (on_device() && !after.empty())
            copy_results_in(pool_stream(*place));
        else
            copy_results();
    } catch (...) {
        error_ = std::current_exception();
    }
    after.clear();
    if (result != COMM_OK)
        world->keep_held(request, keep);
    keep.clear();
    if (result == COMM_OK || result == COMM_ERR_TRUNCATED)
        world->received += statuses.size();
    if (extension_)
        extension_->end();
    leave(true);
}

void Operation::copy_results()
{
    at::AutoDispatchBelowADInplaceOrView plain;
    for (auto &step : after)
        step();
    after.clear();
}

/* The thread has taken the operation. Its request is complete, or the stream waits for it. */
void Operation::copy_results_in(const c10::Stream &stream)
{
    c10::StreamGuard here(stream);
    copy_results();
    copied_.emplace(stream);
    for (const at::Tensor &t : keep)
        record_use(t, stream);
    for (const at::Tensor &t : outputs)
        record_use(t, stream);
}

bool Operation::calls_others()
{
    std::lock_guard<std::mutex> hold(lock_);
    return !unfinished_.empty() || (world->hooks && !world->hooks->empty());
}

void Operation::tell()
{
    report.end();
    world->ended(*this, error_ == nullptr);
    finish_futures();
}

/* A future may be completed only once. The thread that settles and one that asks for the future may be here at a time. */
void Operation::finish_futures()
{
    std::vector<FuturePtr> ours;
    FuturePtr code;
    {
        std::lock_guard<std::mutex> hold(lock_);
        ours.swap(unfinished_);
        code = code_;
    }
    for (const FuturePtr &future : ours)
        if (future == code)
            future->markCompleted(c10::IValue(static_cast<int64_t>(outcome_)));
        else
            finish_tensors(*future);
}

void Operation::finish_tensors(c10::ivalue::Future &future)
{
    if (error_) {
        future.setError(error_);
        return;
    }
    if (!on_device()) {
        future.markCompleted(c10::IValue(outputs));
        return;
    }
    /* The future takes the place that the current stream has reached, and what it calls works on the current device. */
    c10::Stream behind = pool_stream(*place);
    if (copied_)
        copied_->block(behind);
    c10::StreamGuard here(behind);
    future.markCompleted(c10::IValue(outputs));
}

bool Operation::complete()
{
    if (settled())
        return true;
    if (recorded)
        return false;
    comm_result result = comm_test(request);
    if (result == COMM_PENDING || !take(false))
        return settled();
    if (settled()) {
        leave(false);
        return true;
    }
    settle_taken(result);
    tell();
    return true;
}

std::exception_ptr Operation::error()
{
    return settled() ? error_ : nullptr;
}

/* Outside of the device's order the host still has calls of CUDA to make: for the copies of a staged operation, or, for one that a kernel
 * does, when those before it have ended. If a stream stood until they are made, they could be made no more while the program is in a call
 * of CUDA that waits for that stream inside the driver: one that loads a kernel at its first use, or that frees memory. */
bool Operation::needs_host() const
{
    return !settled() && !world->in_device_order();
}

/* False: the host waits. The library has few streams that wait in another's place, and none without stream memory operations. */
bool Operation::wait_in_stream()
{
    c10::DeviceGuard here(*place);
    take(true);
    bool ordered = !error_ && (settled() || comm_stream_wait_request(native_stream(*place), request) == COMM_OK);
    try {
        if (ordered && !after.empty())
            copy_results_in(current_stream(*place));
        else if (ordered && copied_)
            copied_->block(current_stream(*place));
    } catch (...) {
        leave(false);
        throw;
    }
    leave(false);
    return ordered;
}

void Operation::wait(std::chrono::milliseconds limit)
{
    TORCH_CHECK(!recorded, "commstream: wait for ", name, " inside of a coalescing block; it starts when the block ends");
    if (!on_device()) {
        wait_on_host(limit);
        return;
    }
    if (needs_host())
        wait_on_host(limit);
    if (!wait_in_stream()) {
        wait_on_host(limit);
        wait_in_stream();
    }
    adopt(); /* somebody must see the end, since the tensors are in use until then */
}

void Operation::wait_on_host(std::chrono::milliseconds limit)
{
    if (!settled()) {
        comm_result result = comm_wait(request, wait_ns(limit, *world));
        if (result == COMM_PENDING)
            world->late(*this, limit);
        /* A wait inside of a callback is refused, and the operation goes on. */
        comm_result own = result == COMM_OK ? result : comm_test(request);
        if (own == COMM_PENDING)
            world->check(result, name);
        settle(own);
    }
    if (error_)
        std::rethrow_exception(error_);
}

/* The same future each time, which finish_futures() completes. */
FuturePtr Operation::promise(FuturePtr Operation::*which, const c10::TypePtr &type, const std::vector<c10::Device> &devices)
{
    FuturePtr future;
    {
        std::lock_guard<std::mutex> hold(lock_);
        if (!(this->*which)) {
            this->*which = c10::make_intrusive<c10::ivalue::Future>(type, devices);
            unfinished_.push_back(this->*which);
        }
        future = this->*which;
    }
    if (complete())
        finish_futures();
    else
        adopt();
    return future;
}

FuturePtr Operation::future()
{
    std::vector<c10::Device> devices;
    if (on_device())
        devices.push_back(*place);
    return promise(&Operation::tensors_, c10::ListType::create(c10::TensorType::get()), devices);
}

FuturePtr Operation::future_code()
{
    return promise(&Operation::code_, c10::IntType::get(), {});
}

void Operation::adopt()
{
    {
        std::lock_guard<std::mutex> hold(lock_);
        if (adopted_ || settled() || recorded)
            return;
        adopted_ = true;
    }
    world->engine()->adopt(shared_from_this());
}

} // namespace commstream
