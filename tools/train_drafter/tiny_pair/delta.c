// Gated delta rule over whole sequences, forward and backward, for head size 32.
// Arrays are [batch, T, heads, ...]; value head h reads key head h mod n_key. The columns of a state (value dimensions)
// do not know each other, so each half of them is a pass of its own over M[key], one vector register a key.
// The backward pass starts from states that were kept every STRIDE tokens.
#include <string.h>

#define S 32
#define W 16
#define STRIDE 16
typedef float vec __attribute__((vector_size(W * 4)));

typedef struct {
    int batch, T, n_value, n_key;
    const float *q, *k, *v, *beta, *decay; // q [batch, T, n_key, S] scaled; beta, decay [batch, T, n_value]
} input;

static inline vec load(const float *p) {
    vec x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline float sum(vec x) {
    float s[W], r = 0;
    memcpy(s, &x, sizeof x);
    for (int j = 0; j < W; j++) r += s[j];
    return r;
}

// M becomes the next state
static inline void advance(vec *restrict M, const float *restrict k, vec v, float beta, float decay) {
    vec r = {0};
    for (int i = 0; i < S; i++) r += k[i] * M[i];
    const vec u = beta * (v - decay * r);
    for (int i = 0; i < S; i++) M[i] = decay * M[i] + k[i] * u;
}

// one pass: batch row b, value head h, columns from c on; kept [ceil(T / STRIDE), S, W]
static void forward_pass(const input *in, int b, int h, int c, float *restrict out, float *restrict kept) {
    vec M[S];
    memset(M, 0, sizeof M);
    for (int t = 0; t < in->T; t++) {
        const long at = (long)b * in->T + t, row = at * in->n_value + h, key = at * in->n_key + h % in->n_key;
        if (t % STRIDE == 0) memcpy(kept + (long)t / STRIDE * S * W, M, sizeof M);
        advance(M, in->k + key * S, load(in->v + row * S + c), in->beta[row], in->decay[row]);
        vec o = {0};
        for (int i = 0; i < S; i++) o += in->q[key * S + i] * M[i];
        memcpy(out + row * S + c, &o, sizeof o);
    }
}

// gradients of one token: dM comes in as that of the state after it and leaves as that of the state before it
static inline void backward_token(const vec *restrict old, const vec *restrict now, vec *restrict dM,
                                  const float *restrict q, const float *restrict k, vec v, float beta, float a, vec o,
                                  float *restrict dq, float *restrict dk, vec *dv, float *dbeta, float *da) {
    vec r = {0}, du = {0};
    for (int i = 0; i < S; i++) {
        dq[i] += sum(now[i] * o);
        dM[i] += q[i] * o;
        du += k[i] * dM[i];
        r += k[i] * old[i];
    }
    const vec w = v - a * r, u = beta * w, dw = beta * du, dr = -a * dw;
    vec d = -(dw * r);
    for (int i = 0; i < S; i++) {
        dk[i] += sum(dM[i] * u + old[i] * dr);
        d += dM[i] * old[i];
        dM[i] = a * dM[i] + k[i] * dr;
    }
    *dv = dw;
    *dbeta += sum(du * w);
    *da += sum(d);
}

static void backward_pass(const input *in, int b, int h, int c, const float *kept, const float *dout, float *dq, float *dk,
                          float *dv, float *dbeta, float *ddecay) {
    vec dM[S], past[STRIDE + 1][S];
    memset(dM, 0, sizeof dM);
    for (int first = (in->T - 1) / STRIDE * STRIDE; first >= 0; first -= STRIDE) {
        const int n = in->T - first < STRIDE ? in->T - first : STRIDE;
        memcpy(past[0], kept + (long)first / STRIDE * S * W, sizeof past[0]);
        for (int s = 0; s < n; s++) {
            const long at = (long)b * in->T + first + s, row = at * in->n_value + h;
            const float *k = in->k + (at * in->n_key + h % in->n_key) * S;
            memcpy(past[s + 1], past[s], sizeof past[0]);
            advance(past[s + 1], k, load(in->v + row * S + c), in->beta[row], in->decay[row]);
        }
        for (int s = n - 1; s >= 0; s--) {
            const long at = (long)b * in->T + first + s, row = at * in->n_value + h;
            const long key = (at * in->n_key + h % in->n_key) * S;
            vec d;
            backward_token(past[s], past[s + 1], dM, in->q + key, in->k + key, load(in->v + row * S + c), in->beta[row],
                           in->decay[row], load(dout + row * S + c), dq + key, dk + key, &d, dbeta + row, ddecay + row);
            memcpy(dv + row * S + c, &d, sizeof d);
        }
    }
}

static long kept_size(const input *in) { return (long)(in->T + STRIDE - 1) / STRIDE * S * W; }

// out [batch, T, n_value, S]; kept: (T + STRIDE - 1) / STRIDE states of [S, S] for every head
void forward(const input *in, float *out, float *kept) {
    for (int b = 0; b < in->batch; b++)
        for (int h = 0; h < in->n_value; h++)
            for (int c = 0; c < S; c += W, kept += kept_size(in)) forward_pass(in, b, h, c, out, kept);
}

// gradients are added to what the arrays hold
void backward(const input *in, const float *kept, const float *dout, float *dq, float *dk, float *dv, float *dbeta,
              float *ddecay) {
    for (int b = 0; b < in->batch; b++)
        for (int h = 0; h < in->n_value; h++)
            for (int c = 0; c < S; c += W, kept += kept_size(in))
                backward_pass(in, b, h, c, kept, dout, dq, dk, dv, dbeta, ddecay);
}
