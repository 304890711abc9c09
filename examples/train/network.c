#include "network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

static float *network_room(size_t count)
{
    size_t bytes = (count * sizeof(float) + 63) & ~(size_t)63;
    float *room = aligned_alloc(64, bytes);
    if (room != NULL)
        memset(room, 0, bytes);
    return room;
}

/* He's uniform initialization: keeps the variance of values through rectified layers. */
static void network_start(struct network *net, uint64_t seed)
{
    for (size_t l = 0; l < NETWORK_LAYERS; l++) {
        float bound = sqrtf(6.0f / (float)net->widths[l]);
        for (size_t i = net->offsets[2 * l]; i < net->offsets[2 * l + 1]; i++)
            net->parameters[i] = bound * ((float)(random_next(&seed) >> 40) / (float)(1 << 23) - 1.0f);
    }
}

bool network_create(struct network *net, size_t hidden, size_t rows_max, uint64_t seed)
{
    memset(net, 0, sizeof *net);
    net->rows_max = rows_max;
    bool good = true;
    for (size_t l = 0; l <= NETWORK_LAYERS; l++) {
        net->widths[l] = l == 0 ? DIGITS_PIXELS : l == NETWORK_LAYERS ? DIGITS_CLASSES : hidden;
        net->activations[l] = network_room(rows_max * net->widths[l]);
        good = good && net->activations[l] != NULL;
    }
    for (size_t l = 0; l < NETWORK_LAYERS; l++) {
        net->offsets[2 * l + 1] = net->offsets[2 * l] + net->widths[l] * net->widths[l + 1];
        net->offsets[2 * l + 2] = net->offsets[2 * l + 1] + net->widths[l + 1];
    }
    net->parameters = network_room(net->offsets[NETWORK_TENSORS]);
    net->gradients = network_room(net->offsets[NETWORK_TENSORS]);
    net->velocity = network_room(net->offsets[NETWORK_TENSORS]);
    net->errors[0] = network_room(rows_max * hidden);
    net->errors[1] = network_room(rows_max * hidden);
    net->labels = calloc(rows_max, 1);
    good = good && net->parameters != NULL && net->gradients != NULL && net->velocity != NULL && net->errors[0] != NULL &&
           net->errors[1] != NULL && net->labels != NULL;
    if (good)
        network_start(net, seed);
    else
        network_free(net);
    return good;
}

void network_free(struct network *net)
{
    for (size_t l = 0; l <= NETWORK_LAYERS; l++)
        free(net->activations[l]);
    free(net->parameters);
    free(net->gradients);
    free(net->velocity);
    free(net->errors[0]);
    free(net->errors[1]);
    free(net->labels);
    memset(net, 0, sizeof *net);
}

static void network_layer(struct network *net, size_t l)
{
    size_t width = net->widths[l + 1];
    float *to = net->activations[l + 1];
    const float *biases = net->parameters + net->offsets[2 * l + 1];
    matrix_multiply(&(struct matrix_product){.rows = net->rows,
                                             .columns = width,
                                             .inner = net->widths[l],
                                             .a = net->activations[l],
                                             .b = net->parameters + net->offsets[2 * l],
                                             .c = to});
    for (size_t row = 0; row < net->rows; row++) {
        for (size_t j = 0; j < width; j++) {
            float value = to[row * width + j] + biases[j];
            to[row * width + j] = l + 1 < NETWORK_LAYERS && value < 0 ? 0 : value;
        }
    }
}

/* Replaces one row of outputs by its error, softmax minus truth. Returns the loss. */
static double network_softmax(float *row, uint8_t label, size_t *right)
{
    size_t best = 0;
    for (size_t j = 1; j < DIGITS_CLASSES; j++)
        best = row[j] > row[best] ? j : best;
    *right += best == label;
    float top = row[best], sum = 0;
    double loss = (double)(top - row[label]);
    for (size_t j = 0; j < DIGITS_CLASSES; j++)
        sum += row[j] = expf(row[j] - top);
    for (size_t j = 0; j < DIGITS_CLASSES; j++)
        row[j] = row[j] / sum - (j == label ? 1.0f : 0.0f);
    return loss + log((double)sum);
}

double network_forward(struct network *net, const struct digits *digits, const size_t *numbers, size_t rows, size_t *right)
{
    double loss = 0;
    net->rows = rows;
    for (size_t row = 0; row < rows; row++) {
        memcpy(net->activations[0] + row * DIGITS_PIXELS, digits->images[numbers[row]], sizeof digits->images[0]);
        net->labels[row] = digits->labels[numbers[row]];
    }
    for (size_t l = 0; l < NETWORK_LAYERS; l++)
        network_layer(net, l);
    for (size_t row = 0; row < rows; row++)
        loss += network_softmax(net->activations[NETWORK_LAYERS] + row * DIGITS_CLASSES, net->labels[row], right);
    return loss;
}

/* The error of the layer below: multiplied back through the weights, and zero where the rectifier was inactive. */
static void network_pass_down(struct network *net, size_t l, const float *error, float *below)
{
    size_t width = net->widths[l];
    matrix_multiply(&(struct matrix_product){.transpose_b = true,
                                             .rows = net->rows,
                                             .columns = width,
                                             .inner = net->widths[l + 1],
                                             .a = error,
                                             .b = net->parameters + net->offsets[2 * l],
                                             .c = below});
    for (size_t i = 0; i < net->rows * width; i++)
        below[i] = net->activations[l][i] > 0 ? below[i] : 0;
}

void network_backward(struct network *net, float scale, network_hook *hook, void *arg)
{
    float *error = net->activations[NETWORK_LAYERS];
    for (size_t i = 0; i < net->rows * DIGITS_CLASSES; i++)
        error[i] *= scale;
    for (size_t l = NETWORK_LAYERS; l-- > 0;) {
        size_t width = net->widths[l + 1];
        float *biases = net->gradients + net->offsets[2 * l + 1];
        memset(biases, 0, width * sizeof *biases);
        for (size_t row = 0; row < net->rows; row++) {
            for (size_t j = 0; j < width; j++)
                biases[j] += error[row * width + j];
        }
        hook(arg, 2 * l + 1);
        matrix_multiply(&(struct matrix_product){.transpose_a = true,
                                                 .rows = net->widths[l],
                                                 .columns = width,
                                                 .inner = net->rows,
                                                 .a = net->activations[l],
                                                 .b = error,
                                                 .c = net->gradients + net->offsets[2 * l]});
        hook(arg, 2 * l);
        if (l == 0)
            break;
        float *below = net->errors[l % 2];
        network_pass_down(net, l, error, below);
        hook(arg, NETWORK_TURN);
        error = below;
    }
}

void network_update(struct network *net, float rate, float momentum)
{
    for (size_t i = 0; i < net->offsets[NETWORK_TENSORS]; i++) {
        net->velocity[i] = momentum * net->velocity[i] + net->gradients[i];
        net->parameters[i] -= rate * net->velocity[i];
    }
}

uint64_t network_hash(const struct network *net)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < net->offsets[NETWORK_TENSORS]; i++) {
        uint32_t bits;
        memcpy(&bits, &net->parameters[i], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    }
    return hash;
}
