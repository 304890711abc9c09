/* Process groups made from another: of some of its ranks, of more ranks, of the ranks that are left. */
#include <algorithm>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "backend.hpp"

namespace commstream
{

namespace
{

constexpr int shrink_abort = 1; /* torch.distributed.SHRINK_ABORT */

/* The call that starts it is an argument too, so the request is read here, after that call. */
comm_result finish(comm_result started, const comm_request &request)
{
    return started == COMM_OK ? wait_to_the_end(request) : started;
}

} // namespace

std::chrono::milliseconds Backend::timeout_of(const OptionsPtr &opts)
{
    std::lock_guard<std::mutex> hold(lock_);
    return opts ? opts->timeout : timeout_;
}

BackendPtr Backend::split(const StorePtr &store, const std::vector<int> &ranks, const OptionsPtr &opts)
{
    auto mine = std::find(ranks.begin(), ranks.end(), rank_);
    TORCH_CHECK_VALUE(mine != ranks.end(), "commstream: split: rank ", rank_,
                      " is not among the ranks of the new group; expected it there");
    return merge(store, opts, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()));
}

BackendPtr Backend::merge(const StorePtr &store, const OptionsPtr &opts, const int &rank, const int &size)
{
    return c10::make_intrusive<Backend>(store, rank, size, timeout_of(opts), device_);
}

/*
 * Without a failure the ranks that stay make a subset, so those that are left out need not take part. After a failure, or
 * when the old group is to be aborted, the library agrees on who is left: a rank that is to be left out must be dead or
 * have shut its group down.
 */
BackendPtr Backend::shrink(const std::vector<int64_t> &excluded, int flags, const OptionsPtr &opts)
{
    auto old = world();
    std::vector<int32_t> stay;
    for (int r = 0; r < size_; r++)
        if (std::find(excluded.begin(), excluded.end(), r) == excluded.end())
            stay.push_back(r);
    auto mine = std::find(stay.begin(), stay.end(), rank_);
    TORCH_CHECK_VALUE(mine != stay.end(), "commstream: shrink: rank ", rank_, " is excluded; expected a call of the other ranks only");
    comm_communicator *made = nullptr;
    comm_request request;
    uint32_t number = shrinks_++;
    if (getError() == ErrorType::SUCCESS && !(flags & shrink_abort)) {
        old->check(finish(comm_subset(old->get(), stay.data(), stay.size(), number, &made, &request), request), "shrink");
    } else {
        old->check(comm_revoke(old->get()), "shrink");
        old->check(finish(comm_shrink(old->get(), &made, &request), request), "shrink");
    }
    auto world = std::make_shared<World>(*old, made, c10::str("shrink ", number, " to ", stay));
    TORCH_CHECK(world->size() == static_cast<int>(stay.size()), "commstream: shrink: ", world->size(), " ranks are left; expected ",
                stay.size(), ", those that were not excluded");
    return c10::make_intrusive<Backend>(store_, comm_rank(made), world->size(), world, timeout_of(opts), device_);
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
c10d::ReconfigureHandle Backend::get_reconfigure_handle() const
{
    return handle_;
}

/* Members meet under the uuid, in the store of the process group. */
WorkPtr Backend::reconfigure(const c10d::ReconfigureOptions &opts)
{
    std::vector<c10d::ReconfigureHandle> members;
    if (auto *ordered = std::get_if<std::vector<c10d::ReconfigureHandle>>(&opts.handles))
        members = *ordered;
    else {
        const auto &any = std::get<std::unordered_set<c10d::ReconfigureHandle>>(opts.handles);
        members.assign(any.begin(), any.end());
        std::sort(members.begin(), members.end());
    }
    auto mine = std::find(members.begin(), members.end(), handle_);
    TORCH_CHECK_VALUE(mine != members.end(), "commstream: reconfigure: the handles do not contain ", handle_, ", which is this rank's");
    int rank = static_cast<int>(mine - members.begin()), size = static_cast<int>(members.size());
    std::chrono::milliseconds timeout = opts.timeout ? *opts.timeout : timeout_of(nullptr);
    auto store = c10::make_intrusive<c10d::PrefixStore>("reconfigure/" + std::to_string(opts.uuid), store_);
    replace_world(nullptr);
    replace_world(std::make_shared<World>(store, rank, size, timeout, device_));
    rank_ = rank;
    size_ = size;
    auto done = begin("reconfigure", c10d::kUnsetTimeout);
    done->settle(COMM_OK);
    return c10::make_intrusive<Work>(done, rank_, c10d::OpType::UNKNOWN);
}
#endif

} // namespace commstream
