/*
 * A device for tests, which torch knows as privateuseone. Its memory, streams and events are those of the mock CUDA driver (tests/cuda),
 * and its kernels are functions that the driver calls when their stream comes to them. So what a stream has not reached is not in memory,
 * as on a real device. Without a driver there are tensors of the device, and no streams: what is to be refused.
 *
 * As CUDA's caching allocator does, it gives freed memory to the next user in the order of the stream that allocated it, and of those
 * that record_stream named. That user is always there: it writes 0xee.
 */
#include <array>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include <dlfcn.h>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_cpu_dispatch.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_cpu_dispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

extern "C" {
#include "cuda/calls.h"
}

namespace
{

constexpr int devices = 8, pool_streams = 4;
using Handle = CUstream_st *;

/* ------------------------------------------------------------------------------------------------------------ the driver */
struct Driver {
    cuda_calls calls{};
    void (*hold)(Handle stream, bool on) = nullptr, (*capture)(Handle stream, bool on) = nullptr;
    void *(*reach)(const void *at) = nullptr; /* where a kernel finds memory of a device, which the host cannot access */
    std::array<CUctx_st *, devices> contexts{};
    bool here = false;

    Driver()
    {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        hold = library ? reinterpret_cast<void (*)(Handle, bool)>(dlsym(library, "mock_hold")) : nullptr;
        if (!hold)
            return;
        capture = reinterpret_cast<void (*)(Handle, bool)>(dlsym(library, "mock_capture"));
        reach = reinterpret_cast<void *(*)(const void *)>(dlsym(library, "mock_reach"));
#define FIND(field, symbol, result, parameters) calls.field = reinterpret_cast<decltype(calls.field)>(dlsym(library, symbol));
        CUDA_CALLS(FIND)
        here = calls.cuInit(0) == CUDA_OK;
        for (int d = 0; here && d < devices; d++)
            here = calls.cuDevicePrimaryCtxRetain(&contexts[static_cast<size_t>(d)], d) == CUDA_OK;
    }
};

Driver &driver()
{
    static auto *only = new Driver;
    return *only;
}

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<int64_t, devices> current_streams{};

/* A thread has no context before its first call of a device, as with CUDA's runtime. */
void enter(c10::DeviceIndex device)
{
    thread_local int entered = -1;
    if (entered == device)
        return;
    CUctx_st *before;
    if (entered >= 0)
        driver().calls.cuCtxPopCurrent(&before);
    TORCH_CHECK(driver().here && driver().calls.cuCtxPushCurrent(driver().contexts[static_cast<size_t>(device)]) == CUDA_OK, "no driver");
    entered = device;
}

void must(unsigned result, const char *what)
{
    TORCH_CHECK(result == CUDA_OK, "the device of the tests: ", what, " gave ", result);
}
#define MUST(device, call, ...) (enter(device), must(driver().calls.call(__VA_ARGS__), #call))

c10::Stream stream_of(c10::DeviceIndex device, int64_t id)
{
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, device), id);
}

Handle handle_of(const c10::Stream &stream)
{
    return reinterpret_cast<Handle>(static_cast<uintptr_t>(stream.id()));
}

c10::Stream current_stream(c10::DeviceIndex device)
{
    return stream_of(device, current_streams[static_cast<size_t>(device)]);
}

c10::Stream new_stream(c10::DeviceIndex device)
{
    if (!driver().here)
        return stream_of(device, 0);
    Handle handle;
    MUST(device, cuStreamCreateWithPriority, &handle, CUDA_STREAM_NON_BLOCKING, 0);
    return stream_of(device, static_cast<int64_t>(reinterpret_cast<uintptr_t>(handle)));
}

bool is_idle(const c10::Stream &stream)
{
    if (!driver().here)
        return true;
    enter(stream.device_index());
    return driver().calls.cuStreamQuery(handle_of(stream)) == CUDA_OK;
}

void synchronize(const c10::Stream &stream)
{
    while (!is_idle(stream))
        std::this_thread::sleep_for(std::chrono::microseconds(100));
}

/* A kernel. */
void launch(const c10::Stream &stream, std::function<void()> kernel)
{
    if (!driver().here)
        return kernel();
    auto run = [](void *arg) {
        std::unique_ptr<std::function<void()>> all(static_cast<std::function<void()> *>(arg));
        (*all)();
    };
    MUST(stream.device_index(), cuLaunchHostFunc, handle_of(stream), run, new std::function<void()>(std::move(kernel)));
}

/* ------------------------------------------------------------------------------------------------------------ the guard */
struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return c10::kPrivateUse1; }
    c10::Device getDevice() const override { return {c10::kPrivateUse1, current_device}; }
    void setDevice(c10::Device d) const override { current_device = d.index(); }
    void uncheckedSetDevice(c10::Device d) const noexcept override { current_device = d.index(); }
    c10::Device exchangeDevice(c10::Device d) const override
    {
        c10::Device before = getDevice();
        current_device = d.index();
        return before;
    }
    c10::DeviceIndex deviceCount() const noexcept override { return devices; }

    c10::Stream getStream(c10::Device d) const noexcept override { return current_stream(d.has_index() ? d.index() : current_device); }
    c10::Stream getDefaultStream(c10::Device d) const override { return stream_of(d.index(), 0); }
    c10::Stream getNewStream(c10::Device d, int) const override { return new_stream(d.index()); }
    c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override
    {
        static std::mutex lock;
        static std::array<std::vector<c10::Stream>, devices> pools;
        static size_t turn;
        std::lock_guard<std::mutex> hold(lock);
        auto &pool = pools[static_cast<size_t>(d.index())];
        while (pool.size() < pool_streams)
            pool.push_back(new_stream(d.index()));
        return pool[turn++ % pool_streams];
    }
    c10::Stream exchangeStream(c10::Stream s) const noexcept override
    {
        c10::Stream before = current_stream(s.device_index());
        current_streams[static_cast<size_t>(s.device_index())] = s.id();
        return before;
    }
    /* Not in every version of torch, so without `override`. */
    void *getStreamNativeHandle(const c10::Stream s) const { return handle_of(s); }
    bool queryStream(const c10::Stream &s) const override { return is_idle(s); }
    void synchronizeStream(const c10::Stream &s) const override { synchronize(s); }

    void record(void **event, const c10::Stream &s, const c10::DeviceIndex, const c10::EventFlag) const override
    {
        if (!driver().here)
            return;
        if (!*event)
            MUST(s.device_index(), cuEventCreate, reinterpret_cast<CUevent_st **>(event), CUDA_EVENT_DISABLE_TIMING);
        MUST(s.device_index(), cuEventRecord, static_cast<CUevent_st *>(*event), handle_of(s));
    }
    void block(void *event, const c10::Stream &s) const override
    {
        if (event)
            MUST(s.device_index(), cuStreamWaitEvent, handle_of(s), static_cast<CUevent_st *>(event), 0);
    }
    bool queryEvent(void *event) const override
    {
        return !event || driver().calls.cuEventQuery(static_cast<CUevent_st *>(event)) == CUDA_OK;
    }
    void destroyEvent(void *event, const c10::DeviceIndex d) const noexcept override
    {
        if (event)
            MUST(d, cuEventDestroy, static_cast<CUevent_st *>(event));
    }
    void recordDataPtrOnStream(const c10::DataPtr &memory, const c10::Stream &s) const override;
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

/* ------------------------------------------------------------------------------------------------------------ memory */
struct Block {
    void *at;
    size_t bytes;
    c10::Stream stream;
    std::vector<c10::Stream> users;
};
std::mutex blocks_lock;

void give_back(void *block)
{
    auto *b = static_cast<Block *>(block);
    if (!driver().here) {
        free(b->at);
        delete b;
        return;
    }
    Guard guard;
    for (const c10::Stream &user : b->users) {
        void *event = nullptr;
        guard.record(&event, user, -1, c10::EventFlag::PYTORCH_DEFAULT);
        guard.block(event, b->stream);
        guard.destroyEvent(event, user.device_index());
    }
    MUST(b->stream.device_index(), cuMemsetD8Async, reinterpret_cast<uintptr_t>(b->at), 0xee, b->bytes, handle_of(b->stream));
    delete b;
}

struct Allocator final : c10::Allocator {
    c10::DataPtr allocate(size_t n) override
    {
        auto *b = new Block{nullptr, n ? n : 1, current_stream(current_device), {}};
        if (driver().here) {
            cuda_address at;
            MUST(current_device, cuMemAlloc, &at, b->bytes);
            b->at = reinterpret_cast<void *>(static_cast<uintptr_t>(at));
        } else
            b->at = calloc(1, b->bytes);
        return {b->at, b, give_back, c10::Device(c10::kPrivateUse1, current_device)};
    }
    void copy_data(void *, const void *, std::size_t) const override { TORCH_CHECK(false, "not here"); }
};
Allocator allocator;
REGISTER_ALLOCATOR(c10::kPrivateUse1, &allocator)

void Guard::recordDataPtrOnStream(const c10::DataPtr &memory, const c10::Stream &s) const
{
    auto *b = static_cast<Block *>(memory.get_context());
    std::lock_guard<std::mutex> hold(blocks_lock);
    if (b)
        b->users.push_back(s);
}

/* What torch asks an accelerator for: its backward pass, and FSDP. */
struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const { return true; } /* not in every version of torch, so without `override` */
    bool isAvailable() const { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return devices; }
    c10::DeviceIndex getCurrentDevice() const override { return current_device; }
    void setCurrentDevice(c10::DeviceIndex device) const override { current_device = device; }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return std::exchange(current_device, device); }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
    /* Between nothing and something, as FSDP frees and allocates. */
    void resizePrivateUse1Bytes(const c10::Storage &storage, size_t n) const override
    {
        TORCH_CHECK(n == 0 || storage.nbytes() == 0, "the device of the tests: storage of ", storage.nbytes(), " bytes resized to ", n);
        c10::DeviceGuard here(storage.device());
        storage.set_data_ptr_noswap(n ? allocator.allocate(n) : c10::DataPtr(nullptr, storage.device()));
        storage.set_nbytes(n);
    }
};

/* ------------------------------------------------------------------------------------------------------------ kernels */
/* The memory of a tensor as kernels have it, on the CPU. It keeps nothing alive. */
at::Tensor memory_of(const at::Tensor &t)
{
    void *at = driver().reach ? driver().reach(t.data_ptr()) : t.data_ptr();
    at::Tensor same = at::from_blob(at, t.sizes(), t.strides(), at::TensorOptions().dtype(t.dtype()));
    same = t.is_conj() ? same.conj() : same;
    return t.is_neg() ? same._neg_view() : same;
}

at::Tensor host_or_memory(const at::Tensor &t)
{
    return t.is_privateuseone() ? memory_of(t) : t;
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>, std::optional<at::MemoryFormat> format)
{
    c10::OptionalDeviceGuard here(device && device->has_index() ? device : std::nullopt);
    return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(type),
                                     format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>)
{
    c10::OptionalDeviceGuard here(device && device->has_index() ? device : std::nullopt);
    return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                             c10::dtype_or_default(type));
}

at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool)
{
    bool to_host = !to.is_privateuseone();
    c10::Device device = to_host ? from.device() : to.device();
    c10::Stream stream = current_stream(device.index());
    at::Tensor source = from.is_privateuseone() ? memory_of(from) : from.clone(), target = host_or_memory(to);
    launch(stream, [=] {
        at::AutoDispatchBelowADInplaceOrView plain;
        target.copy_(source);
    });
    if (to_host)
        synchronize(stream);
    return to;
}

at::Tensor copy_from_and_resize(const at::Tensor &from, const at::Tensor &to)
{
    if (from.sizes() != to.sizes())
        at::native::resize_(to, from.sizes(), std::nullopt);
    return copy_from(from, to, false);
}

at::Tensor &fill(at::Tensor &t, const at::Scalar &value)
{
    launch(current_stream(t.device().index()), [same = memory_of(t), value] {
        at::AutoDispatchBelowADInplaceOrView plain;
        same.fill_(value);
    });
    return t;
}

at::Tensor as_strided(const at::Tensor &t, c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<int64_t> offset)
{
    return at::cpu::as_strided(t, size, stride, offset);
}

at::Tensor view(const at::Tensor &t, c10::IntArrayRef size)
{
    return at::cpu::view(t, size);
}

at::Tensor reshape_alias(const at::Tensor &t, c10::IntArrayRef size, c10::IntArrayRef stride)
{
    return at::cpu::_reshape_alias(t, size, stride);
}

at::Tensor &cat(const at::ITensorListRef &parts, int64_t dim, at::Tensor &out)
{
    int64_t at = 0;
    for (const at::Tensor &part : parts) {
        out.narrow(dim, at, part.size(dim)).copy_(part);
        at += part.size(dim);
    }
    return out;
}

void on_the_host(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
    m.impl("empty.memory_format", empty);
    m.impl("empty_strided", empty_strided);
    m.impl("_copy_from", copy_from);
    m.impl("_copy_from_and_resize", copy_from_and_resize);
    m.impl("fill_.Scalar", fill);
    m.impl("as_strided", as_strided);
    m.impl("view", view);
    m.impl("_reshape_alias", reshape_alias);
    m.impl("cat.out", cat);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_host>());
}

/* Older torch has none for this device. */
TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFallthrough());
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    namespace py = pybind11;
    static Hooks hooks;
    at::RegisterPrivateUse1HooksInterface(&hooks);
    if (driver().here)
        new_stream(0); /* It has the hardware queue of the default stream, and nothing is put on it. */
    m.def("has_driver", [] { return driver().here; });
    m.def("device_count", [] { return devices; });
    m.def("current_device", [] { return static_cast<int>(current_device); });
    m.def("set_device", [](int device) { current_device = static_cast<c10::DeviceIndex>(device); });
    m.def(
        "new_stream", [] { return new_stream(current_device).id(); }, "A stream of the current device.");
    m.def(
        "current_stream", [] { return current_streams[static_cast<size_t>(current_device)]; }, "That of the current device.");
    m.def(
        "set_stream", [](int64_t id) { return std::exchange(current_streams[static_cast<size_t>(current_device)], id); },
        "Makes it the current one, and returns which was.");
    m.def(
        "hold", [](int64_t id, bool on) { driver().hold(handle_of(stream_of(0, id)), on); }, "Nothing of this stream runs.");
    m.def(
        "capture", [](int64_t id, bool on) { driver().capture(handle_of(stream_of(0, id)), on); },
        "Whether it is being captured in a graph.");
    m.def("idle", [](int64_t id) { return is_idle(stream_of(current_device, id)); });
    m.def(
        "synchronize", [](int64_t id) { synchronize(stream_of(current_device, id)); }, py::call_guard<py::gil_scoped_release>());
    m.def(
        "peek", [](const at::Tensor &t) { return memory_of(t).clone(); }, "What is in its memory now, whatever is on streams.");
}
