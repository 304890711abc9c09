#include "device.hpp"

#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "compat.hpp"

namespace commstream
{

namespace
{

bool tests_device()
{
    static const bool set = std::getenv("COMMSTREAM_TORCH_TEST_DEVICE") != nullptr;
    return set;
}

/* c10::cuda::CUDAStream::stream(), for versions of torch whose streams do not tell their handle. Such a stream has a c10::Stream alone. */
[[maybe_unused]] void *handle_by_name(const c10::Stream &stream)
{
    using StreamOf = void *(*)(const c10::Stream *);
    static const StreamOf of = [] {
        void *library = dlopen("libc10_cuda.so", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
        void *symbol = library ? dlsym(library, "_ZNK3c104cuda10CUDAStream6streamEv") : nullptr;
        StreamOf found = nullptr;
        memcpy(&found, &symbol, sizeof found);
        return found;
    }();
    TORCH_CHECK(of, "commstream: this torch does not tell the handle of a CUDA stream");
    return of(&stream);
}

template <class Stream> auto handle_of(const Stream &stream, int) -> decltype(stream.native_handle())
{
    return stream.native_handle();
}
/* The device of the tests has handles for numbers. */
template <class Stream> void *handle_of(const Stream &stream, long)
{
    return stream.device_type() == c10::kCUDA ? handle_by_name(stream) : reinterpret_cast<void *>(static_cast<uintptr_t>(stream.id()));
}

} // namespace

bool is_served(c10::DeviceType type)
{
    return (type == c10::kCUDA || (type == c10::kPrivateUse1 && tests_device())) && c10::impl::hasDeviceGuardImpl(type);
}

/* torch loads the driver when it first needs it, which may be later. Loading alone initializes nothing. */
void load_driver()
{
    static void *driver = is_served(c10::kCUDA) || is_served(c10::kPrivateUse1) ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) : nullptr;
    (void)driver;
}

c10::Stream current_stream(const c10::Device &device)
{
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Stream pool_stream(const c10::Device &device)
{
    return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

/* NULL is the default stream of the driver's current context. CUDA's runtime makes a thread's context current in its first call that needs
 * one, such as a query. */
CUstream_st *native_stream(const c10::Device &device)
{
    c10::Stream stream = current_stream(device);
    void *handle = handle_of(stream, 0);
    if (!handle)
        (void)c10::impl::VirtualGuardImpl(device.type()).queryStream(stream);
    return static_cast<CUstream_st *>(handle);
}

void record_use(const at::Tensor &t, const c10::Stream &stream)
{
    c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(t.storage().data_ptr(), stream);
}

} // namespace commstream
