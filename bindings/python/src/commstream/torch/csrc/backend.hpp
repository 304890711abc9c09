/*
 * The c10d::Backend. Methods that only some versions of torch have are declared without `override`, so that one source
 * serves them all; those whose types are missing there are guarded by torch's own macros.
 */
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "agreement.hpp"
#include "compat.hpp"
#include "operation.hpp"
#include "types.hpp"
#include "world.hpp"

namespace commstream
{

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using OptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;

/* A call of the C library, and what its time is estimated by. `request` NULL: it is recorded. */
struct Call {
    std::function<comm_result(comm_communicator *, comm_request *)> run;
    const char *collective = nullptr; /* its name; NULL: no time can be told */
    size_t n = 0;
    comm_type type = COMM_BYTE;
    comm_op op = COMM_SUM;
    int32_t root = 0;
};

/* A coalescing block that was given up. Its works end with an error after the locks are released that come after this, since futures call
 * what others wrote. */
struct Dropped {
    std::vector<Call> calls;
    std::shared_ptr<Operation> block;
    ~Dropped();
};

class Backend final : public c10d::Backend
{
  public:
    Backend(const StorePtr &store, int rank, int size, std::chrono::milliseconds timeout, const std::string &device);
    /* Of ranks that have met already; without a world: waits for reconfigure(). */
    Backend(const StorePtr &store, int rank, int size, std::shared_ptr<World> world, std::chrono::milliseconds timeout, std::string device);
    ~Backend() override;

    /* sparse.cpp */
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;

    /* collectives.cpp */
    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ReduceScatterOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &opts) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;

    /* moves.cpp */
    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
    WorkPtr gather_single(at::Tensor &output, at::Tensor &input, const c10d::GatherOptions &opts);
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits, std::vector<int64_t> &input_splits,
                          const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;

    /* messages.cpp, monitor.cpp */
    WorkPtr send(Tensors &tensors, int peer, int tag) override;
    WorkPtr recv(Tensors &tensors, int peer, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all) override;

    /* backend.cpp */
    const std::string getBackendName() const override { return "commstream"; }
    OptionsPtr getBackendOptions();
    bool supportsCoalescing() const { return true; }
    void startCoalescing() override;
    WorkPtr endCoalescing() override;
    /* Gives up a block that an exception has left; nothing of it is started. */
    void dropCoalescing();
    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override;
    void setTimeout(std::chrono::milliseconds timeout);
    void addEphemeralTimeout(const std::chrono::milliseconds &more);
    ErrorType getError();
    void abort();
    void shutdown();
    bool isInitialized();
    void waitForPendingWorks() override;
    std::unordered_map<std::string, uint64_t> getMemoryStats();

    bool supportsTimeEstimation() const { return true; }
    void startTimeEstimate();
    float endTimeEstimate();

    /* recovery.cpp */
    bool supportsSplitting() const override { return torch_splits; }
    BackendPtr split(const StorePtr &store, const std::vector<int> &ranks, const OptionsPtr &opts);
    BackendPtr merge(const StorePtr &store, const OptionsPtr &opts, const int &rank, const int &size);
    bool supportsShrinking() const { return true; }
    BackendPtr shrink(const std::vector<int64_t> &excluded, int flags, const OptionsPtr &opts);
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    bool supportsReconfigure() const override
    {
        return true;
    }
    c10d::ReconfigureHandle get_reconfigure_handle() const override;
    WorkPtr reconfigure(const c10d::ReconfigureOptions &opts) override;
#endif

    /* suspend.cpp */
    void suspend();
    void resume();

    /* window.cpp */
    std::shared_ptr<c10::Allocator> getMemAllocator();
    at::Tensor allocateTensor(long size, at::TensorOptions options);
    bool supportsTensorAlloc(c10::DeviceIndex)
    {
        return true;
    }
#ifdef C10D_BACKEND_HAS_WINDOW
    bool supportsWindow() const override
    {
        return true;
    }
    c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor> &tensor) override;
#endif

    /* share.cpp */
    at::Tensor share(const std::optional<at::Tensor> &given, int64_t bytes, int64_t source);

    /* hooks, in backend.cpp */
    void enableCollectivesTiming() override;
    void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) override;
#ifdef C10D_BACKEND_HAS_HOOKS
    bool supportsAbortHooks() const override
    {
        return true;
    }
    void registerAbortHook(int64_t id, c10d::AbortHook hook) override;
    void unregisterAbortHook(int64_t id) override;
    bool supportsCompletionHooks() const override
    {
        return true;
    }
    void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override;
    void unregisterCompletionHook(int64_t id) override;
#endif

    /* Throws unless it can be used. */
    std::shared_ptr<World> world(const char *name = "");

  private:
    /* While it is changing a thread suspends or resumes it, and calls of others are refused. */
    enum class State { open, changing, suspended };
    struct Suspended {
        std::unique_ptr<Agreement> agreement;
        StorePtr store; /* where its ranks meet again */
        std::chrono::milliseconds deadline;
    };

    std::string group() const;
    void check_open(const char *name) const; /* the lock is held */
    void leave_state(State state);
    bool is_suspended();
    std::chrono::milliseconds longest_timeout(std::chrono::milliseconds without_world) const;
    std::string hindrance(const World &world, std::chrono::milliseconds limit);
    void replace_world(std::shared_ptr<World> next);
    std::chrono::milliseconds timeout_of(const OptionsPtr &opts);
    void estimate(const std::vector<Call> &calls, const Operation &operation);

    at::Tensor exchange(const at::Tensor &words, std::chrono::milliseconds timeout);
    WorkPtr gather_lists(const std::vector<Tensors> &outputs, const Tensors &inputs, const c10d::AllgatherOptions &opts);
    /* Each call begins so. One that throws before start() has recorded it ends the coalescing block that it is in: nothing of it runs. */
    std::shared_ptr<Operation> begin(const char *name, std::chrono::milliseconds timeout);
    /* Starts what is described, in one group if it is several calls. `async`: nobody may be waiting. `shown`: what the profiler shows as
     * its inputs. */
    WorkPtr start(c10d::OpType type, std::shared_ptr<Operation> operation, bool async, const std::vector<Call> &calls,
                  at::TensorList shown);
    void issue(Operation &operation, const std::vector<Call> &calls);
    WorkPtr record(c10d::OpType type, const std::shared_ptr<Operation> &operation, const std::vector<Call> &calls, Dropped &dropped);
    void drop_block(Dropped &dropped);
    std::shared_ptr<Operation> start_block();
    bool in_block();
    bool in_estimate();
    void check_root(int64_t root, const char *name) const;
    void check_size(size_t given, size_t expected, const char *name, const char *what) const;

    StorePtr store_;
    std::string device_; /* of the rank, as World takes it */
    std::mutex lock_;    /* who issues, and the fields below */
    std::shared_ptr<World> world_;
    std::chrono::milliseconds timeout_;
    comm_communicator *recorder_ = nullptr; /* in a coalescing block */
    std::shared_ptr<Operation> block_;
    std::vector<Call> block_calls_; /* to record them again */
    State state_ = State::open;
    Suspended suspended_;
    std::shared_ptr<Extensions> extensions_ = std::make_shared<Extensions>();
    uint64_t sequence_ = 0;
    uint32_t shrinks_ = 0;
    std::atomic<int64_t> monitored_{0}; /* barriers that rank 0 has led */
    bool estimating_ = false;
    double estimate_ns_ = 0;
    std::string handle_;
    std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
};

/* What a world has failed with. A refused call is no failure. */
ErrorType error_of(const World &world);

inline void *begin_of(const at::Tensor &t)
{
    return t.numel() ? t.data_ptr() : nullptr;
}

/* Whether the caller goes on before the work is done, as far as this version of torch says so. */
template <class Options> auto is_async(const Options &opts, int) -> decltype(opts.asyncOp)
{
    return opts.asyncOp;
}
template <class Options> bool is_async(const Options &, long)
{
    return true;
}

} // namespace commstream
