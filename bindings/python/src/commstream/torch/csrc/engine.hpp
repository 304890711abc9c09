/*
 * One engine of the C library for this process, and the thread that completes work for which nobody waits.
 *
 * Calls that a program waits for at once never touch the thread: comm_wait() moves and completes them. The thread runs
 * while there is work that was adopted: asynchronous calls, futures, and work whose handle was dropped. It sleeps on the
 * engine's descriptor, as any event loop does. With its own lock held it makes only calls that never block. An Engine is
 * never freed: its thread may be the one that lets go of the last world.
 *
 * What is called when a future completes may wait for another operation. So a thread that completes a future gives up the
 * part of the one that moves operations. If there is something to move meanwhile, another thread takes that part: one that
 * has nothing to do, or else a new one. There are as many threads as such calls wait at once, and one more.
 */
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <commstream/commstream.h>

namespace commstream
{

struct Operation;
class World;

class Engine
{
  public:
    /* The engine that the next world joins: the current one, or a new one when that is full. */
    static std::shared_ptr<Engine> with_room();
    /* Ends the threads of all engines: the interpreter is about to go. Work is then completed by waits alone. */
    static void stop_all();

    Engine();
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    /* An open communicator of this engine, or NULL: the engine_of of the next world. */
    comm_communicator *member();
    void enlist(comm_communicator *c);
    void leave(comm_communicator *c);
    void adopt(const std::shared_ptr<Operation> &operation);
    /* Settles the adopted operations of a world that are complete, or waits for who is settling them. */
    void settle(const World &world);

  private:
    void stop();
    void run();
    void end(std::vector<std::shared_ptr<Operation>> &ended, bool *mover);
    void let_move();
    bool move(std::vector<std::shared_ptr<Operation>> &ended, int *fd);
    void take_ended(std::vector<std::shared_ptr<Operation>> &ended);
    void ring();

    std::mutex lock_;
    std::condition_variable work_;
    std::vector<comm_communicator *> members_;
    std::vector<std::shared_ptr<Operation>> pending_;
    std::vector<std::thread> threads_;
    std::condition_variable none_ending_;
    size_t ending_ = 0;   /* operations that are complete, and that a thread is settling */
    int idle_ = 0;        /* threads that wait for work */
    bool moving_ = false; /* a thread moves operations, or sleeps on the descriptor */
    int bell_ = -1;
    bool stopping_ = false;
};

} // namespace commstream
