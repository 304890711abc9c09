/* One copy of a tensor per host: a window in which one rank of each host, its keeper, has memory and the others none. */
#include <cstring>

#include "backend.hpp"

namespace commstream
{

namespace
{

int32_t node_of(const World &world, int32_t rank)
{
    comm_peer_info peer{};
    peer.size = sizeof peer;
    world.check(comm_describe_peer(world.get(), rank, &peer), "shared_tensor");
    return peer.node;
}

/* The source, on its host; elsewhere the first rank. */
int32_t keeper_of(const World &world, int32_t rank, int32_t source)
{
    int32_t node = node_of(world, rank);
    if (node_of(world, source) == node)
        return source;
    int32_t first = 0;
    while (node_of(world, first) != node)
        first++;
    return first;
}

struct Step {
    std::shared_ptr<World> world;
    int rank;
    std::chrono::milliseconds timeout;

    template <class Start> comm_window *operator()(const Start &start) const
    {
        auto operation = std::make_shared<Operation>(world, "shared_tensor", timeout);
        operation->message = true;
        world->check(start(*operation), operation->name);
        c10::make_intrusive<Work>(operation, rank, c10d::OpType::UNKNOWN)->wait();
        return operation->window;
    }
};

/* The source stores its elements in its part; keepers of other hosts get them from there. */
void fill(comm_window *window, const Step &step, void *memory, const std::optional<at::Tensor> &given, size_t bytes, int32_t keeper,
          int32_t source)
{
    if (step.rank == source && memory)
        std::memcpy(memory, given->data_ptr(), bytes);
    step([&](Operation &o) { return comm_window_fence(window, &o.request); });
    if (step.rank == keeper && keeper != source)
        step([&](Operation &o) { return comm_get(window, memory, bytes, COMM_BYTE, source, 0, &o.request); });
    step([&](Operation &o) { return comm_window_fence(window, &o.request); });
}

} // namespace

at::Tensor Backend::share(const std::optional<at::Tensor> &given, int64_t bytes, int64_t source)
{
    check_root(source, "shared_tensor");
    auto hold = std::make_shared<Hold>(world());
    const World &here = **hold;
    Step step{hold->world(), rank_, timeout_of(nullptr)};
    auto from = static_cast<int32_t>(source);
    int32_t keeper = keeper_of(here, rank_, from);
    auto length = static_cast<size_t>(bytes);
    comm_window *window =
        step([&](Operation &o) { return comm_window_create(here.get(), keeper == rank_ ? length : 0, nullptr, &o.window, &o.request); });
    void *memory = nullptr;
    comm_result reached = comm_window_pointer(window, keeper, &memory, nullptr);
    fill(window, step, memory, given, length, keeper, from);
    here.check(reached, "shared_tensor"); /* after the others were helped to go on */
    return at::from_blob(
        memory, {bytes}, [hold](void *) {}, at::TensorOptions().dtype(at::kByte));
}

} // namespace commstream
