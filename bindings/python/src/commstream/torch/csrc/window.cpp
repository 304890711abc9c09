/* Memory that ranks of one host share, and windows: one-sided communication. */
#include <cstring>
#include <limits>

#include "backend.hpp"

namespace commstream
{

namespace
{

/* A piece of memory of the library keeps its world open. */
struct Piece {
    explicit Piece(const std::shared_ptr<World> &w) : world(w) {}
    Hold world;
    void *bytes = nullptr;
    ~Piece() { comm_mem_free(world.communicator(), bytes); }
};

void free_piece(void *piece)
{
    delete static_cast<Piece *>(piece);
}

Piece *new_piece(const std::shared_ptr<World> &world, size_t bytes)
{
    comm_info info{};
    info.size = sizeof info;
    world->check(comm_describe(world->get(), &info), "memory allocation");
    TORCH_CHECK_NOT_IMPLEMENTED(strcmp(info.backend, "nccl") != 0,
                                "commstream: memory allocation on backend nccl, whose memory is the device's; use torch.empty");
    auto piece = std::make_unique<Piece>(world); /* which keeps the world open meanwhile */
    world->check(comm_mem_alloc(world->get(), bytes ? bytes : 1, &piece->bytes), "memory allocation");
    return piece.release();
}

class Allocator final : public c10::Allocator
{
  public:
    explicit Allocator(const c10::intrusive_ptr<Backend> &backend) : backend_(backend) {}

    c10::DataPtr allocate(size_t n) override
    {
        c10::intrusive_ptr<Backend> backend = backend_.lock();
        TORCH_CHECK(backend, "commstream: memory allocation: the process group is gone");
        Piece *piece = new_piece(backend->world("memory allocation"), n);
        return {piece->bytes, piece, free_piece, at::Device(at::kCPU)};
    }

    void copy_data(void *to, const void *from, std::size_t count) const override { default_copy_data(to, from, count); }

  private:
    c10::weak_intrusive_ptr<Backend> backend_; /* whose world is another one after resume() */
};

} // namespace

std::shared_ptr<c10::Allocator> Backend::getMemAllocator()
{
    return std::make_shared<Allocator>(c10::intrusive_ptr<Backend>::reclaim_copy(this));
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options)
{
    TORCH_CHECK_VALUE(size >= 0, "commstream: allocateTensor: ", size, " elements; expected 0 or more");
    TORCH_CHECK_VALUE(options.device().is_cpu(), "commstream: allocateTensor: device ", options.device(), "; expected cpu");
    auto item = static_cast<int64_t>(options.dtype().itemsize());
    TORCH_CHECK_VALUE(size <= std::numeric_limits<int64_t>::max() / item, "commstream: allocateTensor: ", size, " elements of ", item,
                      " bytes; expected fewer");
    std::shared_ptr<Piece> piece(new_piece(world(), static_cast<size_t>(size * item)));
    return at::from_blob(
        piece->bytes, {size}, [piece](void *) {}, options);
}

#ifdef C10D_BACKEND_HAS_WINDOW
namespace
{

/* Signals are counted by their sender: slot r of a rank counts those of rank r. */
class Window final : public c10d::Window
{
  public:
    Window(std::shared_ptr<World> world, int rank, std::chrono::milliseconds timeout)
        : hold_(world), world_(std::move(world)), rank_(rank), timeout_(timeout), taken_(static_cast<size_t>(world_->size()))
    {
    }
    /* Freeing is collective, so it is for tensor_deregister(); what was not freed lasts as long as the world. */
    ~Window() override
    {
        if (window_)
            world_->keep({tensor_});
    }

    void tensor_register(const at::Tensor &tensor, bool owning) override;
    void tensor_deregister() override;
    WorkPtr put(const at::Tensor &tensor, int64_t peer, int64_t offset, bool async, const c10d::PutOptions &opts) override;
    at::Tensor map_remote_tensor(int64_t peer) override;
    WorkPtr signal(int64_t peer, bool async, const c10d::SignalOptions &opts) override;
    WorkPtr wait_signal(int64_t peer, bool async, const c10d::WaitSignalOptions &opts) override;
    c10d::WindowAttr get_attr(int64_t peer) override;

  private:
    comm_window *open(const char *name) const;
    int32_t check_peer(int64_t peer, const char *name) const;
    std::shared_ptr<Operation> begin(const char *name, std::chrono::milliseconds timeout) const;
    WorkPtr finish(const std::shared_ptr<Operation> &operation, comm_result started, bool async);

    Hold hold_;
    std::shared_ptr<World> world_;
    int rank_;
    std::chrono::milliseconds timeout_;
    comm_window *window_ = nullptr;
    at::Tensor tensor_; /* owned, or only its shape and type */
    at::ScalarType type_ = at::kByte;
    std::vector<std::atomic<uint64_t>> taken_; /* signals of each rank that were waited for */
};

comm_window *Window::open(const char *name) const
{
    TORCH_CHECK(window_, "commstream: ", name, ": no tensor is registered with the window");
    return window_;
}

int32_t Window::check_peer(int64_t peer, const char *name) const
{
    TORCH_CHECK_VALUE(peer >= 0 && peer < world_->size(), "commstream: ", name, ": rank ", peer, "; expected 0 to ", world_->size() - 1);
    return static_cast<int32_t>(peer);
}

std::shared_ptr<Operation> Window::begin(const char *name, std::chrono::milliseconds timeout) const
{
    auto operation = std::make_shared<Operation>(world_, name, timeout.count() > 0 ? timeout : timeout_);
    operation->message = true;
    return operation;
}

WorkPtr Window::finish(const std::shared_ptr<Operation> &operation, comm_result started, bool async)
{
    world_->check(started, operation->name);
    auto work = c10::make_intrusive<Work>(operation, rank_, c10d::OpType::UNKNOWN);
    if (!async)
        work->wait();
    else if (!operation->complete())
        operation->adopt();
    return work;
}

void Window::tensor_register(const at::Tensor &tensor, bool owning)
{
    check_host_tensor(tensor, "window");
    TORCH_CHECK(!window_, "commstream: window: a tensor is registered already; expected tensor_deregister() first");
    TORCH_CHECK_VALUE(tensor.is_contiguous() && tensor.numel(), "commstream: window: expected a contiguous tensor that is not empty");
    comm_window_options options{};
    options.size = sizeof options;
    options.base = tensor.data_ptr();
    options.signals = static_cast<uint32_t>(world_->size());
    auto operation = begin("window", c10d::kUnsetTimeout);
    try {
        finish(operation, comm_window_create(world_->get(), tensor.nbytes(), &options, &operation->window, &operation->request), false);
    } catch (...) {
        if (operation->request.comm && !operation->settled())
            world_->keep({tensor}); /* the wait was given up, but the others may still get the window */
        throw;
    }
    window_ = operation->window;
    type_ = tensor.scalar_type();
    tensor_ = owning ? tensor : at::Tensor();
    for (auto &taken : taken_)
        taken = 0;
}

void Window::tensor_deregister()
{
    comm_result result = comm_window_free(open("tensor_deregister"));
    if (result != COMM_ERR_STATE) { /* refused: the window is as it was */
        window_ = nullptr;
        tensor_ = at::Tensor();
    }
    world_->check(result, "tensor_deregister");
}

/* The data is there when its rank has seen a signal that was given later. */
WorkPtr Window::put(const at::Tensor &tensor, int64_t peer, int64_t offset, bool async, const c10d::PutOptions &opts)
{
    comm_window *window = open("put");
    check_host_tensor(tensor, "put");
    int32_t to = check_peer(peer, "put");
    TORCH_CHECK_TYPE(tensor.scalar_type() == type_, "commstream: put: a tensor of ", tensor.scalar_type(), "; expected ", type_,
                     ", as that of the window");
    int64_t last = std::numeric_limits<int64_t>::max() / tensor.element_size();
    TORCH_CHECK_VALUE(offset >= 0 && offset <= last, "commstream: put: offset ", offset, "; expected 0 to ", last);
    auto operation = begin("put", opts.timeout);
    at::Tensor dense = operation->input(tensor);
    Elements e = elements_of(dense);
    size_t at = static_cast<size_t>(offset) * tensor.element_size();
    auto start = [&] { return comm_put(window, begin_of(dense), e.n, e.type, to, at, &operation->request); };
    return finish(operation, until_queued(world_->get(), start), async);
}

/* It is valid as long as the window, and shows what that rank's program stores. */
at::Tensor Window::map_remote_tensor(int64_t peer)
{
    void *memory;
    size_t bytes;
    world_->check(comm_window_pointer(open("map_remote_tensor"), check_peer(peer, "map_remote_tensor"), &memory, &bytes),
                  "map_remote_tensor");
    auto n = static_cast<int64_t>(bytes / c10::elementSize(type_));
    auto self = c10::intrusive_ptr<Window>::reclaim_copy(this);
    return at::from_blob(
        memory, {n}, [self](void *) {}, at::TensorOptions().dtype(type_));
}

WorkPtr Window::signal(int64_t peer, bool async, const c10d::SignalOptions &opts)
{
    comm_window *window = open("signal");
    int32_t to = check_peer(peer, "signal");
    auto operation = begin("signal", opts.timeout);
    auto start = [&] { return comm_window_signal(window, to, static_cast<uint32_t>(rank_), 1, &operation->request); };
    return finish(operation, until_queued(world_->get(), start), async);
}

WorkPtr Window::wait_signal(int64_t peer, bool async, const c10d::WaitSignalOptions &opts)
{
    comm_window *window = open("wait_signal");
    auto from = static_cast<uint32_t>(check_peer(peer, "wait_signal"));
    auto operation = begin("wait_signal", opts.timeout);
    uint64_t number = ++taken_[from];
    auto start = [&] { return comm_window_wait_signal(window, from, number, &operation->request); };
    try {
        return finish(operation, until_queued(world_->get(), start), async);
    } catch (...) { /* the next wait is for the same signal, unless another thread's is for a later one */
        taken_[from].compare_exchange_strong(number, number - 1);
        throw;
    }
}

c10d::WindowAttr Window::get_attr(int64_t peer)
{
    void *memory;
    comm_result result = comm_window_pointer(open("get_attr"), check_peer(peer, "get_attr"), &memory, nullptr);
    return {result == COMM_OK ? c10d::WindowAccessType::UNIFIED : c10d::WindowAccessType::SEPARATE};
}

} // namespace

c10::intrusive_ptr<c10d::Window> Backend::new_window(const std::optional<at::Tensor> &tensor)
{
    auto window = c10::make_intrusive<Window>(world(), rank_, timeout_of(nullptr));
    if (tensor)
        window->tensor_register(*tensor, true);
    return window;
}
#endif

} // namespace commstream
