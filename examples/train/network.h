/*
 * A small fully connected network: rectified hidden layers, softmax and cross-entropy, stochastic gradient descent with momentum. Its
 * tensors are numbered in the order of the forward pass, weights of layer l 2l and biases 2l + 1; backward tells of each gradient as soon
 * as it stands. Knows nothing of other ranks.
 */
#ifndef TRAIN_NETWORK_H
#define TRAIN_NETWORK_H

#include "digits.h"

enum { NETWORK_LAYERS = 5, NETWORK_TENSORS = 2 * NETWORK_LAYERS };
#define NETWORK_TURN SIZE_MAX /* no gradient: a pause between two products */

struct network {
    size_t widths[NETWORK_LAYERS + 1];
    size_t rows_max, rows;               /* room of the batch, and the batch that forward saw last */
    size_t offsets[NETWORK_TENSORS + 1]; /* of each tensor in the three arrays below; the last is their length */
    float *parameters, *gradients, *velocity;
    float *activations[NETWORK_LAYERS + 1]; /* rows x width, input first, output turned into its own error by forward */
    float *errors[2];                       /* of the layer that backward is at, and of the one below */
    uint8_t *labels;
};
typedef void network_hook(void *arg, size_t tensor);

bool network_create(struct network *net, size_t hidden, size_t rows_max, uint64_t seed);
void network_free(struct network *net);
/* The batch is those images that `numbers` names; returns the sum of its losses and counts right answers into *right. */
double network_forward(struct network *net, const struct digits *digits, const size_t *numbers, size_t rows, size_t *right);
/* Gradients of scale times the sum of losses, from the last tensor to the first. */
void network_backward(struct network *net, float scale, network_hook *hook, void *arg);
void network_update(struct network *net, float rate, float momentum);
uint64_t network_hash(const struct network *net); /* of the parameters' bits (FNV-1a) */

#endif
