/* What Python sees: a function that makes the backend of a process group. */
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.hpp"
#include "engine.hpp"

namespace py = pybind11;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    m.doc() = "The torch.distributed backend of commstream.";
    m.def(
        "create",
        [](const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::chrono::milliseconds timeout) {
            return commstream::BackendPtr(c10::make_intrusive<commstream::Backend>(store, rank, size, timeout));
        },
        py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::call_guard<py::gil_scoped_release>(),
        "Opens the world of a process group, whose ranks meet through the store.");
    m.def(
        "create_later",
        [](const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::chrono::milliseconds timeout) {
            return commstream::BackendPtr(c10::make_intrusive<commstream::Backend>(store, rank, size, nullptr, timeout));
        },
        py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), "A process group whose world reconfigure() opens.");
    m.def("stop", &commstream::Engine::stop_all, py::call_guard<py::gil_scoped_release>(),
          "Ends the threads that complete asynchronous work: the interpreter is about to end.");
    m.def(
        "library_version", [] { return comm_version(); }, "The version of the C library: major << 16 | minor << 8 | patch.");
}
