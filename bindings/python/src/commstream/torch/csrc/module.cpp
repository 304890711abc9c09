/* What Python sees: a function that makes the backend of a process group. */
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.hpp"
#include "engine.hpp"

namespace py = pybind11;

namespace
{

commstream::Backend &ours(const commstream::BackendPtr &backend, const char *call)
{
    auto *found = dynamic_cast<commstream::Backend *>(backend.get());
    TORCH_CHECK_TYPE(found, "commstream: ", call, ": the group's backend for CPU tensors is ", backend->getBackendName(),
                     "; expected commstream");
    return *found;
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    m.doc() = "The torch.distributed backend of commstream.";
    m.def(
        "create",
        [](const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::chrono::milliseconds timeout, const std::string &device) {
            return commstream::BackendPtr(c10::make_intrusive<commstream::Backend>(store, rank, size, timeout, device));
        },
        py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("device") = "",
        py::call_guard<py::gil_scoped_release>(), "Opens the world of a process group, whose ranks meet through the store.");
    m.def(
        "create_later",
        [](const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::chrono::milliseconds timeout, const std::string &device) {
            return commstream::BackendPtr(c10::make_intrusive<commstream::Backend>(store, rank, size, nullptr, timeout, device));
        },
        py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("device") = "",
        "A process group whose world reconfigure() opens.");
    m.def(
        "share",
        [](const commstream::BackendPtr &backend, const std::optional<at::Tensor> &given, int64_t bytes, int64_t source) {
            return ours(backend, "shared_tensor").share(given, bytes, source);
        },
        py::arg("backend"), py::arg("given"), py::arg("bytes"), py::arg("source"), py::call_guard<py::gil_scoped_release>(),
        "Bytes that the ranks of each host share, with those of the source; collective.");
    m.def(
        "allocate",
        [](const commstream::BackendPtr &backend, int64_t bytes) {
            return ours(backend, "empty").allocateTensor(bytes, at::TensorOptions().dtype(at::kByte));
        },
        py::arg("backend"), py::arg("bytes"), py::call_guard<py::gil_scoped_release>(), "Bytes in memory of the library.");
    m.def(
        "drop_block",
        [](const commstream::BackendPtr &backend) {
            if (auto *found = dynamic_cast<commstream::Backend *>(backend.get()))
                found->dropCoalescing();
        },
        py::arg("backend"), py::call_guard<py::gil_scoped_release>(),
        "Gives up a coalescing block that an exception has left. Backends that are not commstream's stay as they are.");
    m.def("stop", &commstream::Engine::stop_all, py::call_guard<py::gil_scoped_release>(),
          "Ends the threads that complete asynchronous work: the interpreter is about to end.");
    m.def(
        "library_version", [] { return comm_version(); }, "The version of the C library: major << 16 | minor << 8 | patch.");
}
