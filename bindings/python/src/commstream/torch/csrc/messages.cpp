/* Messages. */
#include "backend.hpp"

namespace commstream
{

namespace
{

uint32_t tag_of(int tag, const char *name)
{
    TORCH_CHECK_VALUE(tag >= 0, "commstream: ", name, ": tag ", tag, "; expected 0 or greater");
    return static_cast<uint32_t>(tag);
}

} // namespace

WorkPtr Backend::send(Tensors &tensors, int peer, int tag)
{
    auto op = begin("send", c10d::kUnsetTimeout);
    check_size(tensors.size(), 1, "send", "tensors");
    check_tensor(tensors[0], "send");
    uint32_t t = tag_of(tag, "send");
    op->message = true;
    op->sends = 1;
    at::Tensor buffer = op->input(tensors[0]);
    Elements e = elements_of(buffer);
    Call call{[=](comm_communicator *c, comm_request *r) { return comm_send(c, begin_of(buffer), e.n, e.type, peer, t, r); }};
    return start(c10d::OpType::SEND, op, true, {call}, tensors);
}

WorkPtr Backend::recv(Tensors &tensors, int peer, int tag)
{
    auto op = begin("recv", c10d::kUnsetTimeout);
    check_size(tensors.size(), 1, "recv", "tensors");
    check_tensor(tensors[0], "recv");
    uint32_t t = tag_of(tag, "recv");
    op->message = true;
    op->statuses.push_back(std::make_unique<comm_status>());
    comm_status *status = op->statuses.back().get();
    at::Tensor buffer = op->output(tensors[0]);
    Elements e = elements_of(buffer);
    Call call{[=](comm_communicator *c, comm_request *r) { return comm_recv(c, begin_of(buffer), e.n, e.type, peer, t, status, r); }};
    return start(peer == COMM_ANY_PEER ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV, op, true, {call}, tensors);
}

WorkPtr Backend::recvAnysource(Tensors &tensors, int tag)
{
    return recv(tensors, COMM_ANY_PEER, tag);
}

} // namespace commstream
