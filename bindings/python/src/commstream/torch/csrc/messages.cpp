/* Messages, and the barrier that names who is missing, which is made of them. */
#include "backend.hpp"

namespace commstream
{

namespace
{

/* Tags of torch are 0 to INT_MAX. */
constexpr uint32_t monitor_tag = 0x80000001u;

uint32_t tag_of(int tag, const char *name)
{
    TORCH_CHECK_VALUE(tag >= 0, "commstream: ", name, ": tag ", tag, "; expected 0 or greater");
    return static_cast<uint32_t>(tag);
}

int64_t left_ns(Clock::time_point end)
{
    return std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(end - Clock::now()).count());
}

} // namespace

WorkPtr Backend::send(Tensors &tensors, int peer, int tag)
{
    auto op = begin("send", c10d::kUnsetTimeout);
    check_size(tensors.size(), 1, "send", "tensors");
    check_tensor(tensors[0], "send");
    uint32_t t = tag_of(tag, "send");
    op->message = true;
    op->sends = 1;
    at::Tensor buffer = op->input(tensors[0]);
    Elements e = elements_of(buffer);
    Call call{[=](comm_communicator *c, comm_request *r) { return comm_send(c, begin_of(buffer), e.n, e.type, peer, t, r); }};
    return start(c10d::OpType::SEND, op, true, {call});
}

WorkPtr Backend::recv(Tensors &tensors, int peer, int tag)
{
    auto op = begin("recv", c10d::kUnsetTimeout);
    check_size(tensors.size(), 1, "recv", "tensors");
    check_tensor(tensors[0], "recv");
    uint32_t t = tag_of(tag, "recv");
    op->message = true;
    op->statuses.push_back(std::make_unique<comm_status>());
    comm_status *status = op->statuses.back().get();
    at::Tensor buffer = op->output(tensors[0]);
    Elements e = elements_of(buffer);
    Call call{[=](comm_communicator *c, comm_request *r) { return comm_recv(c, begin_of(buffer), e.n, e.type, peer, t, status, r); }};
    return start(c10d::OpType::RECV, op, true, {call});
}

WorkPtr Backend::recvAnysource(Tensors &tensors, int tag)
{
    return recv(tensors, COMM_ANY_PEER, tag);
}

void Backend::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all)
{
    auto op = begin("monitoredBarrier", opts.timeout);
    TORCH_CHECK(!in_block(), "commstream: monitoredBarrier inside of a coalescing block; it would wait for what the block has not started");
    monitor(op, opts.timeout == c10d::kUnsetTimeout ? op->timeout : std::min(opts.timeout, op->world->deadline()), wait_all);
}

/* Every rank tells rank 0 that it came, and waits for rank 0's answer. */
void Backend::monitor(const std::shared_ptr<Operation> &operation, std::chrono::milliseconds timeout, bool wait_all)
{
    World &world = *operation->world;
    comm_communicator *c = world.get();
    Clock::time_point end = Clock::now() + timeout;
    comm_request request;
    if (rank_ != 0) {
        world.check(comm_send(c, nullptr, 0, COMM_BYTE, 0, monitor_tag, &request), operation->name);
        comm_result result = comm_wait(request, left_ns(end));
        if (result == COMM_OK) {
            world.check(comm_recv(c, nullptr, 0, COMM_BYTE, 0, monitor_tag, nullptr, &request), operation->name);
            result = comm_wait(request, left_ns(end));
        }
        if (result == COMM_PENDING && comm_cancel(request) == COMM_OK)
            result = comm_wait(request, COMM_FOREVER);
        TORCH_CHECK(result != COMM_ERR_CANCELLED && result != COMM_PENDING, "commstream: Rank ", rank_,
                    " timed out in monitoredBarrier after ", timeout.count(), " ms: no answer of rank 0; it or another rank did not come");
        world.check(result, operation->name);
        return;
    }
    std::string missing;
    for (int r = 1; r < size_ && (missing.empty() || wait_all); r++) {
        world.check(comm_recv(c, nullptr, 0, COMM_BYTE, r, monitor_tag, nullptr, &request), operation->name);
        comm_result result = comm_wait(request, left_ns(end));
        if (result == COMM_PENDING && comm_cancel(request) == COMM_OK)
            result = comm_wait(request, COMM_FOREVER);
        if (result != COMM_OK)
            missing += (missing.empty() ? "" : ", ") + std::to_string(r);
    }
    TORCH_CHECK(missing.empty(), "commstream: Rank 0 timed out in monitoredBarrier after ", timeout.count(),
                " ms: ", missing.find(',') == std::string::npos ? "Rank " : "Ranks ", missing, " failed to pass monitoredBarrier in ",
                timeout.count(), " ms"); /* the words by which programs know Gloo's error */
    for (int r = 1; r < size_; r++) {
        world.check(comm_send(c, nullptr, 0, COMM_BYTE, r, monitor_tag, &request), operation->name);
        world.check(comm_wait(request, COMM_FOREVER), operation->name);
    }
}

} // namespace commstream
