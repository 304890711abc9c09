/*
 * A world of the C library that meets through a c10d store: opening, closing, and how its errors become exceptions. It
 * lives as long as somebody uses it: the backend, running operations, memory and windows made from it.
 */
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <commstream/commstream.h>

namespace commstream
{

class Engine;
struct Operation;

class World
{
  public:
    World(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::chrono::milliseconds timeout);
    /* A communicator that was made from another world's. */
    World(const World &parent, comm_communicator *made);
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    comm_communicator *get() const;
    int size() const { return size_; }
    const std::shared_ptr<Engine> &engine() const { return engine_; }
    /* The library's deadline of each operation. */
    std::chrono::milliseconds deadline() const { return deadline_; }

    void close(int64_t timeout_ns);
    void abort(int32_t code);
    bool failed(comm_error *detail) const;

    /* Throws what a result says, with the library's text. */
    void check(comm_result result, const std::string &name) const;
    [[noreturn]] void late(const Operation &operation, std::chrono::milliseconds limit) const;

    /* Hooks of the backend's user. */
    using OnCompletion = std::function<void(uint64_t key, bool success)>;
    void on_completion(OnCompletion hook);
    void ended(const Operation &operation, bool success) const;

  private:
    void open(const c10::intrusive_ptr<c10d::Store> &store, int rank, std::chrono::milliseconds timeout);

    std::shared_ptr<Engine> engine_;
    comm_communicator *communicator_ = nullptr;
    int size_;
    std::chrono::milliseconds deadline_;
    mutable std::mutex lock_;
    OnCompletion on_completion_;
};

} // namespace commstream
