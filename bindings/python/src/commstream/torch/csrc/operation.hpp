/*
 * An operation: a request of the C library, the tensors that it uses, and what is to be done when it has ended. A Work is
 * a handle to it. Whoever sees first that the request is complete settles the operation: once, outside all locks of the
 * C library.
 */
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <commstream/commstream.h>

#include "device.hpp"
#include "report.hpp"
#include "world.hpp"

namespace commstream
{

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

/*
 * What add_ephemeral_timeout() adds to the timeouts of works. Each addition counts for all works that begin after it, until the first of
 * them has completed: that one owns it.
 */
class Extensions
{
  public:
    void add(std::chrono::milliseconds more);

  private:
    friend class Extension;
    std::mutex lock_;
    std::chrono::milliseconds active_{0};
    std::chrono::milliseconds owned_{0}; /* the part of it that a work owns */
};

/* What a work has of them. */
class Extension
{
  public:
    explicit Extension(std::shared_ptr<Extensions> all);
    ~Extension(); /* of a work that never ran: the next one owns what it did */
    Extension(const Extension &) = delete;
    Extension &operator=(const Extension &) = delete;
    std::chrono::milliseconds more() const { return more_; }
    /* The work has completed. */
    void end();

  private:
    std::shared_ptr<Extensions> all_;
    std::chrono::milliseconds more_, own_;
};

struct Operation : std::enable_shared_from_this<Operation> {
    Operation(std::shared_ptr<World> w, const char *n, std::chrono::milliseconds t);

    /* Filled in before the operation is shared. */
    std::shared_ptr<World> world;
    std::string name;
    std::chrono::milliseconds timeout;
    uint64_t sequence = 0;       /* among the collectives of its group; 0: a message */
    uint64_t key = 0;            /* unique in the process */
    std::vector<uint64_t> parts; /* a block: the keys of its calls */
    comm_request request{nullptr, 0};
    std::atomic<bool> recorded{false}; /* part of a coalescing block that has not ended */
    bool calling = false; /* a block: a call of it has begun and is not recorded; if that is still so later, the call was refused */
    bool message = false;
    uint64_t sends = 0; /* messages that it sends */
    std::vector<at::Tensor> keep;
    std::vector<at::Tensor> outputs;
    std::vector<std::function<void()>> after; /* copies results to where they belong */
    std::vector<std::unique_ptr<comm_status>> statuses;
    Report report;
    std::optional<c10::Device> place; /* of its tensors; empty: it has none */
    comm_window *window = nullptr;    /* that it creates: a wait may be given up, and the library writes this at the end */

    /* Adds to its timeout, but for the library's deadline. */
    void extend(const std::shared_ptr<Extensions> &all);

    /* Throws unless all tensors are on one device. */
    void use(const c10::Device &device);
    bool on_device() const { return place && !place->is_cpu(); }
    /* Issued on c from now on: behind what the current stream of its device has so far. */
    void follow_stream(comm_communicator *c) const;

    /* Throws where elements share memory, as those of expand() do. */
    void check_output(const at::Tensor &t) const;
    /* What is copied before the call, from a tensor that is not dense. */
    at::Tensor input(const at::Tensor &t);
    /* A dense tensor that stands for t, whose elements go to t at the end. */
    at::Tensor output(const at::Tensor &t);
    at::Tensor in_out(const at::Tensor &t);

    /* Takes what another operation uses, which is part of this one. */
    void absorb(Operation &part);

    bool settled() const { return settled_.load(std::memory_order_acquire); }
    void settle(comm_result result);
    /* Ends what was recorded and is never started. */
    void give_up(const char *why);
    /* The two steps of settle(). False: another thread settles it, and tells. */
    bool settle_quietly(comm_result result);
    void tell();
    /* Whether tell() calls what others wrote. */
    bool calls_others();
    /* Does not wait, also not for another thread that is settling. */
    bool complete();
    /* On a device the current stream waits, and the host goes on, if that can be. */
    void wait(std::chrono::milliseconds limit);
    void wait_on_host(std::chrono::milliseconds limit);
    std::exception_ptr error();
    FuturePtr future();
    /* Completes with a c10d::WorkResult as a number, and never with an error. */
    FuturePtr future_code();
    void adopt();

  private:
    /* One thread at a time has taken the operation, to copy its results and to drop its tensors. False: another has. */
    bool take(bool wait);
    void leave(bool settled);
    void settle_taken(comm_result result);
    FuturePtr promise(FuturePtr Operation::*which, const c10::TypePtr &type, const std::vector<c10::Device> &devices);
    void finish_futures();
    void finish_tensors(c10::ivalue::Future &future);
    bool needs_host() const;
    bool wait_in_stream();
    void copy_results();
    void copy_results_in(const c10::Stream &stream);

    std::mutex lock_; /* of the flags and of the future; held for a moment only, since callers may hold the interpreter's lock */
    std::condition_variable free_;
    bool taken_ = false;
    std::atomic<bool> settled_{false};
    bool adopted_ = false;
    std::optional<Extension> extension_;
    std::exception_ptr error_;
    c10d::WorkResult outcome_ = c10d::WorkResult::UNKNOWN; /* of what never started */
    std::optional<Mark> copied_;                           /* on a device, behind what `after` did */
    FuturePtr tensors_, code_;                             /* if they were asked for: of the outputs, and of the c10d::WorkResult */
    std::vector<FuturePtr> unfinished_;                    /* of the two */
};

class Work final : public c10d::Work
{
  public:
    Work(std::shared_ptr<Operation> operation, int rank, c10d::OpType type) : Work(operation, rank, type, operation->key) {}
    /* Of a call in a block: the operation is the block's, the key the call's own. */
    Work(std::shared_ptr<Operation> operation, int rank, c10d::OpType type, uint64_t key)
        : c10d::Work(rank, type), operation_(std::move(operation)), key_(key)
    {
    }
    ~Work() override;

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void abort() override;
    FuturePtr getFuture() override;
    FuturePtr getFutureResult() override;
    float getDuration() const override;
    uint64_t getSequencenumber() const override;
    /* Not in every torch that this is compiled for, so without `override`. */
    std::chrono::milliseconds getTimeout() const;
    uint64_t getCompletionKey() const;

  private:
    std::shared_ptr<Operation> operation_;
    uint64_t key_;
};

} // namespace commstream
