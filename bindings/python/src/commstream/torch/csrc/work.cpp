/* What torch asks a work: all of it is the operation's. */
#include "interpreter.hpp"
#include "operation.hpp"

namespace commstream
{

Work::~Work()
{
    if (!operation_->settled())
        operation_->adopt();
}

bool Work::isCompleted()
{
    return operation_->complete();
}

bool Work::isSuccess() const
{
    return operation_->complete() && !operation_->error();
}

std::exception_ptr Work::exception() const
{
    return operation_->complete() ? operation_->error() : nullptr;
}

int Work::sourceRank() const
{
    TORCH_CHECK(operation_->statuses.size() == 1, "commstream: sourceRank of ", operation_->name, "; expected one receive from any rank");
    if (operation_->on_device()) {
        Unlocked interpreter;
        operation_->wait_on_host(operation_->timeout);
    }
    TORCH_CHECK(operation_->complete(), "commstream: sourceRank of a receive that is not complete");
    return operation_->statuses.front()->peer;
}

std::vector<at::Tensor> Work::result()
{
    return operation_->outputs;
}

/* torch calls it with the interpreter's lock held; not so wait(). */
void Work::synchronize()
{
    Unlocked interpreter;
    wait();
}

bool Work::wait(std::chrono::milliseconds timeout)
{
    operation_->wait(timeout == kNoTimeout ? operation_->timeout : timeout);
    return true;
}

/* A receive that matched nothing can be taken back; anything else needs its peers, so it goes on. */
void Work::abort()
{
    comm_result result = comm_cancel(operation_->request);
    TORCH_CHECK(result == COMM_OK, "commstream: abort of ", operation_->name,
                "; expected a receive that has not matched. abort() of the process group ends all its work");
}

FuturePtr Work::getFuture()
{
    return operation_->future();
}

FuturePtr Work::getFutureResult()
{
    return operation_->future_code();
}

float Work::getDuration() const
{
    TORCH_CHECK(operation_->report.timed(), "commstream: duration of ", operation_->name,
                "; expected _enable_collectives_timing() of its process group first");
    TORCH_CHECK(operation_->complete(), "commstream: duration of ", operation_->name, ", which is not complete");
    return operation_->report.milliseconds();
}

uint64_t Work::getSequencenumber() const
{
    return operation_->sequence;
}
std::chrono::milliseconds Work::getTimeout() const
{
    return operation_->timeout;
}
/* What completion hooks are called with. */
uint64_t Work::getCompletionKey() const
{
    return key_;
}

} // namespace commstream
