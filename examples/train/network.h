/*
 * A small fully connected network: rectified hidden layers, softmax and cross-entropy, stochastic gradient descent with momentum. Its
 * tensors are numbered in the order of the forward pass: the weights of layer l have number 2l, its biases 2l + 1. The backward pass calls
 * a hook for each gradient as soon as it is complete. The network knows nothing of other ranks.
 */
#ifndef TRAIN_NETWORK_H
#define TRAIN_NETWORK_H

#include "digits.h"

enum { NETWORK_LAYERS = 5, NETWORK_TENSORS = 2 * NETWORK_LAYERS };
#define NETWORK_TURN SIZE_MAX /* not a gradient: a pause between two products */

struct network {
    size_t widths[NETWORK_LAYERS + 1];
    size_t rows_max, rows;               /* largest batch, and the batch of the last forward pass */
    size_t offsets[NETWORK_TENSORS + 1]; /* of each tensor in the three arrays below; the last is their length */
    float *parameters, *gradients, *velocity;
    float *activations[NETWORK_LAYERS + 1]; /* rows x width; input first. network_forward replaces the output by its error */
    float *errors[2];                       /* of the current layer of the backward pass, and of the layer below */
    uint8_t *labels;
};
typedef void network_hook(void *arg, size_t tensor);

bool network_create(struct network *net, size_t hidden, size_t rows_max, uint64_t seed);
void network_free(struct network *net);
/* The batch consists of the images in `numbers`. Returns the sum of the losses, and counts correct answers in *right. */
double network_forward(struct network *net, const struct digits *digits, const size_t *numbers, size_t rows, size_t *right);
/* Computes the gradients of scale times the sum of losses, from the last tensor to the first. */
void network_backward(struct network *net, float scale, network_hook *hook, void *arg);
void network_update(struct network *net, float rate, float momentum);
uint64_t network_hash(const struct network *net); /* of the bits of the parameters (FNV-1a) */

#endif
