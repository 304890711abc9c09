/*
 * A world of the C library that meets through a c10d store: opening, closing, and how its errors become exceptions. It
 * lives as long as somebody uses it: the backend, running operations, memory and windows made from it.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <commstream/commstream.h>

#include "lists.hpp"

namespace commstream
{

class Engine;
class Meeting;
struct Operation;

/* The result of an operation. A wait inside of a callback is refused, and the operation goes on. */
inline comm_result wait_to_the_end(comm_request request)
{
    comm_result result = comm_wait(request, COMM_FOREVER);
    while (result != COMM_OK && (result = comm_test(request)) == COMM_PENDING)
        std::this_thread::yield();
    return result;
}

/* The result of a call of the library, which is made again while the queue is full. */
template <class Call> comm_result until_queued(comm_communicator *engine, const Call &call)
{
    comm_result result;
    while ((result = call()) == COMM_ERR_FULL)
        (void)!comm_progress(engine);
    return result;
}

/* They run one at a time, without the interpreter's lock: those of Python take it. One that was removed does not run any more. */
class Hooks
{
  public:
    std::atomic<bool> timing{false}; /* works that begin are timed */
    void add_completion(int64_t id, std::function<void(uint64_t)> hook);
    void remove_completion(int64_t id);
    void add_abort(int64_t id, std::function<void()> hook);
    void remove_abort(int64_t id);
    /* One for the life of the backend, which gets the works' times. */
    void set_reporter(std::function<void(std::shared_ptr<c10d::WorkInfo>)> hook);
    void completed(uint64_t key) const;
    void report(const Operation &operation) const;
    void aborting() const;
    bool empty() const;

  private:
    template <class Hook, class... Values> static void run(const Hook &hook, const Values &...values);
    template <class Some> Some copy_of(const Some &hooks) const;
    template <class Some> void remove(Some &hooks, int64_t id);

    mutable std::recursive_mutex running_; /* held while hooks run, which may remove themselves */
    mutable std::mutex lock_;              /* of the fields below */
    std::map<int64_t, std::function<void(uint64_t)>> completion_;
    std::map<int64_t, std::function<void()>> abort_;
    std::function<void(std::shared_ptr<c10d::WorkInfo>)> reporter_;
};

class World
{
  public:
    /* device: the rank's, such as "cuda:1"; empty: that of its place on the host. `again`: the store is for this meeting alone, so that
     * nothing of it is left there once all have met. */
    World(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::chrono::milliseconds timeout, std::string device,
          bool again = false);
    /* A communicator that was made from another world's. `name` tells it from others made from that. */
    World(const World &parent, comm_communicator *made, const std::string &name);
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    comm_communicator *get() const;
    int size() const { return size_; }
    const std::shared_ptr<Engine> &engine() const { return engine_; }
    /* The library's deadline of each operation. */
    std::chrono::milliseconds deadline() const { return deadline_; }
    /* A name that its ranks know, and that no other world has; empty where there is one rank. */
    const std::string &name() const { return name_; }

    /* Closes it now, or when nothing holds it any more; get() throws from now on. */
    void retire();
    /* Why it cannot give its memory back; empty: it can. */
    std::string in_use() const;
    void abort(int32_t code);
    bool failed(comm_error *detail) const;

    /* Throws what a result says, with the library's text. */
    void check(comm_result result, const std::string &name) const;
    std::string text_of(comm_result result) const;
    comm_info describe() const;
    /* Whether the library tells memory of a device from the host's. */
    bool sees_devices() const;
    bool in_device_order() const; /* operations end in streams of the device, and the host has no part in that */
    [[noreturn]] void late(const Operation &operation, std::chrono::milliseconds limit) const;

    /* What the user of the backend wants to be told: each operation that completed well, by its work's key, and failures. */
    std::shared_ptr<Hooks> hooks;
    void ended(const Operation &operation, bool success) const;

    /* Keeps tensors until the world is closed. */
    void keep(const std::vector<at::Tensor> &tensors);
    /* The same of an operation that has failed, if the library still uses its buffers. */
    void keep_held(comm_request request, const std::vector<at::Tensor> &tensors);

    Scratch scratch;

    /* Messages of this rank that were sent, and those that it has received. */
    std::atomic<uint64_t> sent{0}, received{0};

  private:
    friend class Hold;
    void close();
    void drop_kept(comm_result closed);
    void open(const c10::intrusive_ptr<c10d::Store> &store, int rank, bool again);
    void end_meeting(Meeting &meeting);

    using Count = std::shared_ptr<std::atomic<int>>;

    std::string name_;
    Count children_ = std::make_shared<std::atomic<int>>(0); /* open ones that were made from it */
    Count siblings_;                                         /* of those that were made from its parent, this one among them */
    std::string device_;
    std::shared_ptr<Engine> engine_;
    comm_communicator *communicator_ = nullptr;
    bool retired_ = false;
    int holds_ = 0;
    std::vector<at::Tensor> kept_;
    std::optional<comm_result> closed_; /* what the close returned */
    int size_;
    std::chrono::milliseconds deadline_;
    mutable std::mutex lock_;
};

/* Keeps a world open: whoever uses its memory has one. */
class Hold
{
  public:
    explicit Hold(std::shared_ptr<World> world);
    ~Hold();
    Hold(const Hold &) = delete;
    Hold &operator=(const Hold &) = delete;
    World &operator*() const { return *world_; }
    World *operator->() const { return world_.get(); }
    const std::shared_ptr<World> &world() const { return world_; }
    /* Also of a world that is retired. */
    comm_communicator *communicator() const { return world_->communicator_; }

  private:
    std::shared_ptr<World> world_;
};

} // namespace commstream
