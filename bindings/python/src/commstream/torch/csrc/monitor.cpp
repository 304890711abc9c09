/*
 * The barrier that names who is missing. Rank 0 calls each rank; a rank answers the call; when all have answered, rank 0 lets them go.
 *
 * A barrier that was given up leaves messages behind. So each message has the number of rank 0's barrier: rank 0 drops the answers to
 * earlier calls, and a rank goes only if it has answered that call in the same barrier. A rank sends nothing before it is called, so rank 0
 * counts none that has left before.
 */
#include <algorithm>

#include "backend.hpp"

namespace commstream
{

namespace
{

/* Tags of torch are 0 to INT_MAX. */
constexpr uint32_t monitor_tag = 0x80000001u;

struct Note {
    int64_t number; /* of rank 0's barriers, from 1 */
    int64_t go;     /* 1: all ranks have answered */
};

class Monitor
{
  public:
    Monitor(const Operation &operation, std::chrono::milliseconds timeout)
        : world_(*operation.world), name_(operation.name), timeout_(timeout), end_(Clock::now() + timeout)
    {
    }
    void lead(int64_t number, bool wait_all);
    void follow(int rank);

  private:
    void send(int peer, const Note &note);
    /* COMM_ERR_CANCELLED: the time is up. */
    comm_result receive(int peer, Note *note);
    bool answers(int peer, int64_t number);

    const World &world_;
    const std::string &name_;
    std::chrono::milliseconds timeout_;
    Clock::time_point end_;
};

void Monitor::send(int peer, const Note &note)
{
    comm_communicator *c = world_.get();
    comm_request request;
    auto start = [&] { return comm_send(c, &note, sizeof note, COMM_BYTE, peer, monitor_tag, &request); };
    world_.check(until_queued(c, start), name_);
    world_.check(wait_to_the_end(request), name_);
}

comm_result Monitor::receive(int peer, Note *note)
{
    comm_communicator *c = world_.get();
    comm_request request;
    auto start = [&] { return comm_recv(c, note, sizeof *note, COMM_BYTE, peer, monitor_tag, nullptr, &request); };
    world_.check(until_queued(c, start), name_);
    int64_t left = std::chrono::duration_cast<std::chrono::nanoseconds>(end_ - Clock::now()).count();
    if (comm_wait(request, std::max<int64_t>(0, left)) == COMM_PENDING)
        (void)!comm_cancel(request); /* refused: its message is there */
    return wait_to_the_end(request);
}

bool Monitor::answers(int peer, int64_t number)
{
    Note note;
    while (receive(peer, &note) == COMM_OK)
        if (note.number == number)
            return true;
    return false;
}

void Monitor::lead(int64_t number, bool wait_all)
{
    std::string missing;
    for (int r = 1; r < world_.size(); r++)
        send(r, {number, 0});
    for (int r = 1; r < world_.size() && (missing.empty() || wait_all); r++)
        if (!answers(r, number))
            missing += (missing.empty() ? "" : ", ") + std::to_string(r);
    TORCH_CHECK(missing.empty(), "commstream: Rank 0 timed out in monitoredBarrier after ", timeout_.count(),
                " ms: ", missing.find(',') == std::string::npos ? "Rank " : "Ranks ", missing, " failed to pass monitoredBarrier in ",
                timeout_.count(), " ms"); /* the words by which programs know Gloo's error */
    for (int r = 1; r < world_.size(); r++)
        send(r, {number, 1});
}

void Monitor::follow(int rank)
{
    int64_t answered = 0;
    while (true) {
        Note note;
        comm_result result = receive(0, &note);
        TORCH_CHECK(result != COMM_ERR_CANCELLED, "commstream: Rank ", rank, " timed out in monitoredBarrier after ", timeout_.count(),
                    " ms: no answer of rank 0; it or another rank did not come");
        world_.check(result, name_);
        if (note.go && note.number == answered)
            return;
        if (note.go)
            continue;
        answered = note.number;
        send(0, note);
    }
}

} // namespace

void Backend::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all)
{
    auto op = begin("monitoredBarrier", opts.timeout);
    TORCH_CHECK(!in_block(), "commstream: monitoredBarrier inside of a coalescing block; it would wait for what the block has not started");
    Monitor monitor(*op, opts.timeout == c10d::kUnsetTimeout ? op->timeout : std::min(opts.timeout, op->world->deadline()));
    if (rank_ == 0)
        monitor.lead(++monitored_, wait_all);
    else
        monitor.follow(rank_);
}

} // namespace commstream
