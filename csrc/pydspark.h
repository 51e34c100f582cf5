// The C API of pydspark's core: everything Python sees.
// The part between the cdef markers is handed to cffi as it stands, so it holds plain declarations only.
#ifndef PYDSPARK_H
#define PYDSPARK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PDS_ABI_VERSION 1

// [cdef begin]

// Status codes: every call that can fail returns one and fills its pds_error.
enum {
    PDS_OK               = 0,
    PDS_ERR_ARGUMENT     = 1,
    PDS_ERR_CONTEXT_FULL = 2, // values = { n_prompt_tokens, n_ctx }
    PDS_ERR_FILE         = 3,
    PDS_ERR_FORMAT       = 4,
    PDS_ERR_PAIR         = 5,
    PDS_ERR_UNSUPPORTED  = 6,
    PDS_ERR_MEMORY       = 7, // values = { bytes wanted, bytes free }
    PDS_ERR_CANCELLED    = 8,
    PDS_ERR_INTERNAL     = 9,
};

typedef struct pds_error {
    int32_t code;
    int64_t values[2];
    char    message[4000]; // UTF-8, ends with NUL
} pds_error;

// Called on the calling thread, at most about every 30 ms, during long calls. A result other than 0 cancels the call.
// fraction is in [0, 1].
typedef int32_t (*pds_progress_fn)(void * user, double fraction);

// Says which tokens may follow the first tokens of an answer: sets bits of words, [n_words] and all 0, the bit id % 32
// of word id / 32 for each id. Called on the calling thread for answers that may still be taken back; only tokens of
// the last round can differ from those of the call before. A result other than 0 cancels the call.
typedef int32_t (*pds_mask_fn)(void * user, const int32_t * tokens, int64_t n_tokens, uint32_t * words,
                               int64_t n_words);

// ---- library ----

int32_t      pds_abi_version(void);
const char * pds_ggml_version(void);       // of the library that is loaded
const char * pds_ggml_build_version(void); // of the headers this was compiled with
const char * pds_ggml_build_options(void); // "CUDA=OFF OPENMP=OFF ..." of that build
const char * pds_ggml_features(void);      // "AVX2=1 LLAMAFILE=1 ..." of the CPU code that is loaded

// Copies waiting log lines ("<level> <text>\n", level one of D I W E) and forgets them. Returns the bytes written.
int64_t pds_log_take(char * buffer, int64_t size);

typedef struct pds_device_info {
    char    name[64];
    char    description[128];
    int32_t is_gpu;
    int64_t memory_free;  // bytes
    int64_t memory_total; // bytes
} pds_device_info;

int32_t pds_device_count(void);
int32_t pds_device_get(int32_t index, pds_device_info * out, pds_error * error);

// ---- GGUF files ----

typedef struct pds_gguf pds_gguf;

// path: any file of a split set opens the whole set.
int32_t pds_gguf_open(const char * path, pds_gguf ** out, pds_error * error);
void    pds_gguf_free(pds_gguf * gguf);

typedef struct pds_gguf_kv {
    const char * key; // key_size bytes, no NUL at the end
    int64_t      key_size;
    int32_t      type;      // GGUF value type number (4 u32, 6 f32, 8 string, 9 array, ...)
    int32_t      item_type; // for arrays: the type of one item; otherwise the same as type
    int64_t      n;         // items; 1 for scalars
    const void * data;      // little-endian items in the mapped file; for strings see pds_gguf_kv_strings
    int64_t      n_bytes;   // bytes of all items; for strings the bytes of their text alone
} pds_gguf_kv;

int64_t pds_gguf_n_kv(const pds_gguf * gguf);
int32_t pds_gguf_kv_get(const pds_gguf * gguf, int64_t index, pds_gguf_kv * out, pds_error * error);
// offsets: [n + 1] positions in bytes; bytes: [n_bytes], the texts one after another
int32_t pds_gguf_kv_strings(const pds_gguf * gguf, int64_t index, int64_t * offsets, char * bytes, pds_error * error);

typedef struct pds_gguf_tensor {
    const char * name;
    const char * type_name;
    int32_t      type; // ggml type number
    int32_t      n_dims;
    int64_t      ne[4];
    int64_t      n_bytes;
    int32_t      file_index;
} pds_gguf_tensor;

int64_t      pds_gguf_n_tensors(const pds_gguf * gguf);
int32_t      pds_gguf_tensor_get(const pds_gguf * gguf, int64_t index, pds_gguf_tensor * out, pds_error * error);
int32_t      pds_gguf_n_files(const pds_gguf * gguf);
const char * pds_gguf_file_path(const pds_gguf * gguf, int32_t file_index);
int32_t      pds_gguf_version(const pds_gguf * gguf);

// Replaces or adds a metadata value that later reads of this handle see (the file is not touched).
int32_t pds_gguf_override_int(pds_gguf * gguf, const char * key, int64_t value, pds_error * error);
int32_t pds_gguf_override_float(pds_gguf * gguf, const char * key, double value, pds_error * error);
int32_t pds_gguf_override_bool(pds_gguf * gguf, const char * key, int32_t value, pds_error * error);
int32_t pds_gguf_override_string(pds_gguf * gguf, const char * key, const char * value, pds_error * error);

// Writes the model as one file with its weights in another type (ggml type number); see model/quantize.h for what is
// kept. Without replace an existing file is refused. After an error or a cancel nothing is left behind.
int32_t pds_quantize(const pds_gguf * gguf, const char * path, int32_t type, int32_t replace, pds_progress_fn progress,
                     void * user, pds_error * error);

// ---- target model ----

typedef struct pds_model pds_model;

typedef struct pds_model_params {
    int32_t n_gpu_layers; // -1 = all that a GPU can take
    int32_t use_mmap;
    int32_t use_mlock;
    int32_t repack; // rearrange weights for the CPU where ggml has a faster layout
    // of a drafter; both are exact
    int32_t draft_candidates; // rows that its Markov head looks at for a token; 0 = all
    int32_t draft_shortlist;  // rows of its head: 0 = all, -1 = those that its file lists, n = that many of them
} pds_model_params;

enum {
    PDS_ROLLBACK_REPLAY    = 0, // keep the state before a batch, and the inputs of its tokens
    PDS_ROLLBACK_SNAPSHOTS = 1, // keep the state after each token of a batch
};

typedef struct pds_session_params {
    int32_t n_ctx;    // 0 = the model's own
    int32_t n_batch;  // prompt tokens between two cancel checks
    int32_t n_ubatch; // rows of one prompt graph
    int32_t n_threads;
    int32_t n_threads_batch;
    int32_t type_k; // ggml type numbers of the attention cache
    int32_t type_v;
    int32_t flash_attn;    // 0 = attention from plain operations
    int32_t fused_experts; // 0 = routing and sum of experts from plain operations
    int32_t verify_exact;  // 1 = rows of a verified batch are computed just as single tokens are
    int32_t type_k_draft;  // of the drafter's cache
    int32_t type_v_draft;
    int32_t lookup_match;       // tokens that must agree before text is copied as drafts, up to 64; 0 = no lookup
    int32_t rollback;           // PDS_ROLLBACK_*: how recurrent layers take rejected drafts back
    int64_t prompt_cache_bytes; // most bytes of checkpoints of prompts, for models that need them; 0 = none
} pds_session_params;

typedef struct pds_memory_line {
    char    device[64];
    int64_t weights; // bytes
    int64_t mapped;  // of the weights, bytes that stay in the mapped file
    int64_t kv;
    int64_t state; // of recurrent layers
    int64_t compute;
    int64_t free;
} pds_memory_line;

typedef struct pds_memory_report {
    int32_t         n_lines;
    int32_t         n_ctx;
    int64_t         token_bytes;      // of the caches, for each token of context
    int64_t         checkpoint_bytes; // of a checkpoint of recurrent layers, besides its tokens' caches; 0 without
    pds_memory_line lines[8];
} pds_memory_report;

// What loading would take, without loading. draft: null for plain decoding.
int32_t pds_memory_plan(const pds_gguf * gguf, const pds_gguf * draft, const pds_model_params * model,
                        const pds_session_params * session, pds_memory_report * out, pds_error * error);

int32_t pds_model_load(const pds_gguf * gguf, const pds_model_params * params, pds_progress_fn progress, void * user,
                       pds_model ** out, pds_error * error);
void    pds_model_free(pds_model * model);

typedef struct pds_model_info {
    char    architecture[32];
    int32_t n_vocab;      // named tokens
    int32_t n_vocab_rows; // rows of the output, at least n_vocab
    int32_t n_embd;
    int32_t n_layer;
    int32_t n_recurrent; // layers with a recurrent state instead of a cache
    int32_t n_head;
    int32_t n_head_kv;
    int32_t n_ctx_train;
    int64_t n_params;
    int64_t n_bytes;
} pds_model_info;

// Reads hyper-parameters only.
int32_t pds_model_describe(const pds_gguf * gguf, pds_model_info * out, pds_error * error);

// ---- drafter ----

typedef struct pds_draft pds_draft;

// A drafter for a loaded target. PDS_ERR_PAIR lists every reason why the two do not belong together.
int32_t pds_draft_load(const pds_gguf * gguf, const pds_model * target, const pds_model_params * params,
                       pds_progress_fn progress, void * user, pds_draft ** out, pds_error * error);
void    pds_draft_free(pds_draft * draft);

typedef struct pds_draft_info {
    int32_t n_layer;
    int32_t n_embd;
    int32_t block_size;
    int32_t n_slots; // tokens that a block can propose
    int32_t mask_token_id;
    int32_t anchor_first; // 1 = slot i predicts the token after the anchor by i + 1 (DSpark's layout)
    int32_t has_markov_head;
    int32_t has_confidence;
    int32_t borrows_embedding; // 1 = the target's
    int32_t borrows_head;
    int32_t n_short_list; // tokens that the file lists to choose drafts from; 0 = no list
    int32_t n_target_layers;
    int32_t target_layers[64]; // whose outputs are the features
    int64_t n_bytes;
} pds_draft_info;

// Reads hyper-parameters only.
int32_t pds_draft_describe(const pds_gguf * draft, pds_draft_info * out, pds_error * error);
// PDS_ERR_PAIR lists every reason why the two do not belong together.
int32_t pds_pair_check(const pds_gguf * target, const pds_gguf * draft, pds_error * error);

// ---- session: one sequence on one model ----

typedef struct pds_session pds_session;

// draft: null for plain decoding.
int32_t pds_session_new(pds_model * model, pds_draft * draft, const pds_session_params * params, pds_session ** out,
                        pds_error * error);
void    pds_session_free(pds_session * session);
void    pds_session_memory(const pds_session * session, pds_memory_report * out);

enum {
    PDS_DRAFT_PROBABILISTIC = 0, // drawn at random: accepted as often as can be
    PDS_DRAFT_GREEDY        = 1, // the likeliest token
    PDS_DRAFT_COUPLED       = 2, // same seed, same text as without drafter; also changes how plain decoding draws
};

// How many drafts a round verifies.
enum {
    PDS_SCHEDULE_AUTO      = 0, // as many as pay for themselves, by what rounds cost and how many are accepted
    PDS_SCHEDULE_THRESHOLD = 1, // up to the first that the drafter trusts less than draft_conf_min
    PDS_SCHEDULE_FIXED     = 2, // n_draft_max
};

typedef struct pds_request {
    const int32_t * tokens; // [n_tokens] the whole prompt
    int64_t         n_tokens;
    int64_t         n_predict; // most tokens to emit; negative = until the context ends
    const int32_t * stop_ids;  // [n_stop_ids] ids that end generation; they are not emitted
    int64_t         n_stop_ids;
    int32_t         reuse_prefix;
    const int64_t * boundaries; // [n_boundaries] numbers of prompt tokens, ascending, that later prompts may begin with
    int64_t         n_boundaries;

    uint64_t        seed;
    float           temperature; // <= 0 = greedy
    int32_t         top_k;       // <= 0 = off
    float           top_p;       // 1 = off
    float           min_p;       // 0 = off
    float           repeat_penalty;
    float           presence_penalty;
    float           frequency_penalty;
    int32_t         repeat_last_n; // tokens that penalties look back on; -1 = all
    const int32_t * bias_ids;      // [n_bias]
    const float *   bias_values;   // [n_bias] added to the logits; -inf bans
    int64_t         n_bias;

    pds_mask_fn mask; // or null: any token may follow
    void *      mask_user;

    int32_t n_draft_max;    // most tokens to draft per round; 0 = plain decoding, -1 = as many as the drafter can
    int32_t n_lookup_max;   // most tokens of a round when some are copied from earlier text, up to 16; 0 = no lookup
    float   draft_conf_min; // a round drafts up to the first token that the drafter trusts less
    int32_t draft_sampling; // PDS_DRAFT_*
    int32_t block_verify;   // 1 = accept whole blocks at once, 0 = token by token; both are exact
    int32_t draft_schedule; // PDS_SCHEDULE_*

    int32_t logprobs;     // 1 = report log-probabilities
    int32_t top_logprobs; // 0..20 alternatives per token
} pds_request;

enum {
    PDS_FINISH_NONE    = 0, // more to come
    PDS_FINISH_STOP_ID = 1,
    PDS_FINISH_LENGTH  = 2, // n_predict reached
    PDS_FINISH_CONTEXT = 3, // the context is full
};

// Tokens committed by one round. With a drafter a round can commit several.
typedef struct pds_step {
    int32_t n_tokens; // emitted, 0..32
    int32_t finish;
    int32_t stop_id;      // the id that ended generation, or -1
    int32_t n_by_drafter; // verified drafts that the drafter proposed; those behind them were copied from earlier text
    int32_t tokens[32];
    float   logprob[32];
    int32_t top_ids[32 * 20]; // [20] per token
    float   top_logprob[32 * 20];
} pds_step;

// What decided how many drafts a round verified.
enum {
    PDS_DEPTH_PARKED     = 0, // drafting did not pay: a plain step
    PDS_DEPTH_PROBED     = 1, // a try, to see whether it pays by now
    PDS_DEPTH_COST       = 2, // the next draft was worth less than its time
    PDS_DEPTH_CONFIDENCE = 3, // the next draft was trusted less than draft_conf_min
    PDS_DEPTH_WHOLE      = 4, // all that the drafter, the request or the context allow
    PDS_DEPTH_REASONS    = 5,
};

typedef struct pds_stats {
    int64_t prompt_n; // prompt tokens evaluated
    int64_t cache_n;  // prompt tokens taken from the last request
    double  prompt_ms;
    int64_t predicted_n;
    double  predicted_ms;
    double  host_ms; // of predicted_ms, outside of graphs
    int64_t n_rounds;
    int64_t draft_rounds;     // rounds that ran the drafter or copied tokens
    int64_t draft_n;          // drafted tokens that were verified
    int64_t draft_n_accepted; // of these, emitted
    double  draft_ms;
    double  verify_ms;
    int64_t drafted_at[32]; // by position in the block
    int64_t accepted_at[32];
    int64_t lookup_rounds;         // of draft_rounds, those with tokens copied from earlier text
    int64_t lookup_drafted_at[32]; // of drafted_at and accepted_at, the copied tokens
    int64_t lookup_accepted_at[32];
    double  saved_ms;                   // by drafts, over plain steps; negative = lost
    int64_t depths[33];                 // rounds by the number of drafts they verified
    int64_t reasons[PDS_DEPTH_REASONS]; // rounds by what decided that number
} pds_stats;

// Evaluates the prompt. After an error or a cancel the session holds what was evaluated and can start again.
int32_t pds_session_start(pds_session * session, const pds_request * request, pds_progress_fn progress, void * user,
                          pds_error * error);
int32_t pds_session_step(pds_session * session, pds_step * out, pds_error * error);
void    pds_session_stats(const pds_session * session, pds_stats * out);
// From any thread: the running start or step ends soon with PDS_ERR_CANCELLED; without one the next is not affected.
void pds_session_cancel(pds_session * session);
// Keeps at most the first n tokens of the sequence and ends the request.
void pds_session_cut(pds_session * session, int64_t n);
// Forgets the sequence.
void pds_session_reset(pds_session * session);
// Tokens whose state is held, for the next request to share.
int64_t pds_session_n_past(const pds_session * session);

// For tests and tools: appends tokens as one batch and copies named tensors of the graph ("l_out-2", "result_output").
// out[i]: [sizes[i]] floats, sizes in elements.
int32_t pds_session_inspect(pds_session * session, const int32_t * tokens, int64_t n_tokens, const char ** names,
                            int64_t n_names, float ** out, const int64_t * sizes, pds_error * error);
// The same for the drafter: the n likeliest tokens after an anchor, ids: [n]. The sequence is not changed.
// Names: "draft_hidden" [n_embd, n], "draft_base" [n_rows, n], "draft_logits-<i>" [n_rows], "draft_confidence-<i>" [1].
int32_t pds_session_inspect_draft(pds_session * session, int32_t anchor, int32_t n, int32_t * ids, const char ** names,
                                  int64_t n_names, float ** out, const int64_t * sizes, pds_error * error);
// For benchmarks: appends n_tokens as one batch with logits for every row, forgets them, and does so n_repeats times.
// ms_out: [n_repeats] milliseconds of each. Run it once before: the first time builds the graph.
int32_t pds_session_measure(pds_session * session, int32_t n_tokens, int32_t n_repeats, double * ms_out,
                            pds_error * error);

// Kinds of work in a target's graph.
enum {
    PDS_STAGE_EMBEDDING    = 0,
    PDS_STAGE_ATTENTION    = 1,
    PDS_STAGE_DELTA_NET    = 2,
    PDS_STAGE_FEED_FORWARD = 3,
    PDS_STAGE_HEAD         = 4,
    PDS_STAGE_FEATURES     = 5, // what a drafter takes from it
    PDS_N_STAGES           = 6,
};

// The same, in pieces, by kind of work. ms_out: [n_repeats, PDS_N_STAGES]
int32_t pds_session_measure_stages(pds_session * session, int32_t n_tokens, int32_t n_repeats, double * ms_out,
                                   pds_error * error);

// What a session has learnt of the costs of batches and of the drafter's reliability; to be kept for the next one with
// the same files, settings and devices.
enum {
    PDS_LEARNT_ROWS  = 34, // batches of 1 .. 33 rows
    PDS_LEARNT_SLOTS = 32,
    PDS_LEARNT_BINS  = 16, // equal steps of the confidence's logit from -8 to 8
};

// Kinds of drafting and judging, each with a reliability of its own.
enum {
    PDS_LEARNT_GREEDY  = 0, // the target's likeliest token
    PDS_LEARNT_DRAWN   = 1, // drafts drawn at random, judged by the ratio of probabilities
    PDS_LEARNT_CERTAIN = 2, // the drafter's likeliest tokens, judged by the target's probability
    PDS_LEARNT_COUPLED = 3, // the same noise on both sides
    PDS_LEARNT_KINDS   = 4,
};

typedef struct pds_learnt_cost {
    double weight; // batches that count
    double ms;     // their mean
    double depth;  // tokens of context, mean
} pds_learnt_cost;

typedef struct pds_learnt_costs {
    pds_learnt_cost rows[PDS_LEARNT_ROWS]; // by number of rows; of a drafter, by tokens of the chain
    double          depth_var;             // sums over batches of (rows * depth)^2 and of (rows * depth) * ms,
    double          depth_cov;             // each against its mean
} pds_learnt_costs;

typedef struct pds_learnt_bin {
    double weight; // verified tokens that count
    double logits; // sum of their confidences' logits
    double labels; // sum of their probabilities of acceptance
} pds_learnt_bin;

typedef struct pds_learnt_slots {
    pds_learnt_bin bins[PDS_LEARNT_SLOTS][PDS_LEARNT_BINS];
} pds_learnt_slots;

typedef struct pds_learnt {
    pds_learnt_costs verify;
    pds_learnt_costs draft;
    pds_learnt_slots kinds[PDS_LEARNT_KINDS];
} pds_learnt;

void pds_session_learnt(const pds_session * session, pds_learnt * out);
// frozen: it is not learnt any further, so that how deep rounds draft depends on the text alone.
void pds_session_set_learnt(pds_session * session, const pds_learnt * learnt, int32_t frozen);

// From the next request on, drafts are accepted by chance: the draft in slot i with probability by_slot[i] if those
// before it are, the last of n values also in later slots. What is generated then means nothing. n = 0: no more.
// For benchmarks.
int32_t pds_session_set_synthetic(pds_session * session, const float * by_slot, int32_t n, uint64_t seed,
                                  pds_error * error);

// [cdef end]

#ifdef __cplusplus
}
#endif

#endif // PYDSPARK_H
