"""``Llama``: the class of llama-cpp-python, on pydspark's engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from pydspark import chat_results, hub, results
from pydspark.compat import compatible
from pydspark.drafting import DRAFTING, drafting_options, one_draft
from pydspark.engine import Engine
from pydspark.errors import ArgumentError, UnsupportedError
from pydspark.generate import Token
from pydspark.loaded import LoadedModel
from pydspark.params import RANDOM_SEED, ChatParams, ModelParams, SamplingParams
from pydspark.records import Progress
from pydspark.sampling_defaults import DefaultFloat, DefaultInt, constructor_sampling
from pydspark.structured import answer_grammar
from pydspark.text.grammar import Grammar


class Llama(LoadedModel):
    """A model in a GGUF file, with the methods of llama-cpp-python's class of that name.

    Differences: ``n_ctx`` is 8192 and ``verbose`` off by default; layers go to a GPU when there is one; an unknown
    keyword is a TypeError; a known keyword that asks for something pydspark does not do is an UnsupportedError; text of
    chat messages never becomes control tokens. One object holds one sequence: calls from several threads wait for each
    other (see ``pydspark.turns.Turns``). Also works in a ``with`` statement.

    Args:
        model_path: a file, or ``user/model[:quant]`` in the Hugging Face cache.
        model: another name of ``model_path``.
        draft: a drafter that was made for the model, named in the same way; of a repo, its ``dspark-`` file. It makes
            generating faster and does not change what is generated.
        draft_model: another name of ``draft``; an object is an UnsupportedError.
        draft_schedule, n_draft_max, lookup_max, draft_conf_min, draft_sampling, draft_accept: for calls that do not say
            otherwise; see ``pydspark.params.SamplingParams``. Without drafts only ``draft_sampling`` counts.
        sampling: temperature, filters and penalties for calls that do not say otherwise, such as ``{"top_k": 20}``;
            they replace what the model file recommends.
        kv_overrides: metadata to replace or add.
        seed: for calls without one; -1 and 4294967295 mean another one for each call.
        last_n_tokens_size: how many tokens the penalties look back on.
        vocab_only: read the tokenizer and the metadata, and no weights.
        verbose: show progress and notes of the logger ``pydspark`` on stderr.
        progress: told the fraction loaded, in [0, 1]; a false result stops loading.
        Other arguments: see ``pydspark.params.ModelParams``.

    Attributes:
        model_path: the file.
        draft_path: the drafter's file, or None.
        engine: what runs it, for front ends that want events instead of dictionaries.

    Raises:
        ModelFileError: no such file, or a damaged one.
        UnsupportedError: a model or an argument that pydspark does not support.
        OutOfMemoryError: the model or its context does not fit.
        PairingError: the drafter was not made for this model; the message lists every mismatch.
        ArgumentError: an argument is out of range, or asks for what the drafter cannot do.
    """

    # The parameters of llama-cpp-python come first, in its order.
    @compatible
    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        *,
        n_gpu_layers: int = -1,
        split_mode: int = 1,
        main_gpu: int = 0,
        tensor_split: Sequence[float] | None = None,
        vocab_only: bool = False,
        use_mmap: bool = True,
        use_mlock: bool = False,
        kv_overrides: Mapping[str, bool | int | float | str] | None = None,
        seed: int = RANDOM_SEED,
        n_ctx: int = 8192,
        n_batch: int = 512,
        n_ubatch: int = 512,
        n_threads: int | None = None,
        n_threads_batch: int | None = None,
        rope_scaling_type: int | None = -1,
        pooling_type: int = -1,
        attention_type: int = -1,
        rope_freq_base: float = 0.0,
        rope_freq_scale: float = 0.0,
        yarn_ext_factor: float = -1.0,
        yarn_attn_factor: float = 1.0,
        yarn_beta_fast: float = 32.0,
        yarn_beta_slow: float = 1.0,
        yarn_orig_ctx: int = 0,
        logits_all: bool = False,
        embedding: bool = False,
        offload_kqv: bool = True,
        flash_attn: bool = True,
        op_offload: bool | None = None,
        swa_full: bool | None = None,
        no_perf: bool = False,
        last_n_tokens_size: int = DefaultInt(64),
        lora_base: str | None = None,
        lora_scale: float = 1.0,
        lora_path: str | None = None,
        numa: bool | int = False,
        chat_format: str | None = None,
        chat_handler: object | None = None,
        draft_model: object | None = None,
        tokenizer: object | None = None,
        type_k: int | str | None = None,
        type_v: int | str | None = None,
        spm_infill: bool = False,
        verbose: bool = False,
        model: str | os.PathLike[str] | None = None,
        draft: str | os.PathLike[str] | None = None,
        repack: bool = True,
        fused_experts: bool = True,
        progress: Progress | None = None,
        spec_type: str = "auto",
        verify: str = "exact",
        rollback: str = "replay",
        cache_ram: int = 8192,
        calibration: bool = True,
        lookup_match: int = 3,
        type_k_draft: int | str | None = None,
        type_v_draft: int | str | None = None,
        draft_candidates: int = 64,
        draft_shortlist: int | None = None,
        n_draft_max: int | None = None,
        draft_schedule: str = "auto",
        lookup_max: int = 16,
        draft_conf_min: float = 0.0,
        draft_sampling: str = "coupled",
        draft_accept: str = "block",
        sampling: Mapping[str, Any] | None = None,
    ) -> None:
        if (model_path is None) == (model is None):
            raise ArgumentError("give one of model_path and model")
        params = ModelParams(
            n_ctx=n_ctx, n_batch=n_batch, n_ubatch=n_ubatch, n_threads=n_threads, n_threads_batch=n_threads_batch,
            n_gpu_layers=n_gpu_layers, use_mmap=use_mmap, use_mlock=use_mlock, repack=repack, type_k=type_k,
            type_v=type_v, flash_attn=flash_attn, spec_type=spec_type, verify=verify, type_k_draft=type_k_draft,
            type_v_draft=type_v_draft, fused_experts=fused_experts, rollback=rollback, cache_ram=cache_ram,
            calibration=calibration, lookup_match=lookup_match, draft_candidates=draft_candidates,
            draft_shortlist=draft_shortlist,
        )  # fmt: skip
        defaults = SamplingParams(
            draft_schedule=draft_schedule, n_draft_max=n_draft_max, lookup_max=lookup_max,
            draft_conf_min=draft_conf_min,
            draft_sampling=draft_sampling, draft_accept=draft_accept,
        )  # fmt: skip
        self._drafting = {name: getattr(defaults, name) for name in DRAFTING}
        self._settings = constructor_sampling(sampling)
        if verbose:
            _show_log()
        self.set_seed(seed)
        self._last_n_tokens_size = last_n_tokens_size
        target = model_path if model_path is not None else model or ""
        self.model_path = str(hub.resolve(target))
        drafter = hub.resolve_draft(one_draft(draft, draft_model), target, spec_type)
        self.draft_path = None if drafter is None else str(drafter)
        self.engine = Engine(self.model_path, params, kv_overrides, vocab_only, progress, drafter, defaults)

    @classmethod
    @compatible
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None = None,
        additional_files: Sequence[str] | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        local_dir_use_symlinks: bool | str = "auto",
        cache_dir: str | os.PathLike[str] | None = None,
        draft_repo_id: str | None = None,
        draft_filename: str | None = None,
        **kwargs: Any,
    ) -> Llama:
        """Opens a model of a Hugging Face repo: from the cache, else downloaded (extra ``pydspark[hub]``).

        Args:
            repo_id: ``user/model``.
            filename: a name or glob pattern; None = Q4_K_M, then Q8_0, then the first model file.
            local_dir: a folder of this repo's files, used instead of the cache.
            cache_dir: the cache folder.
            draft_repo_id: repo of a drafter; None = ``repo_id`` if ``draft_filename`` is given.
            draft_filename: a name or glob pattern; None = the file that begins with ``dspark-`` or ``dflash-``.
            kwargs: handed to ``Llama``.

        Raises:
            ModelFileError: there is no such file, or it cannot be downloaded.
        """
        path = hub.resolve_repo(repo_id, filename=filename, cache_dir=cache_dir, local_dir=local_dir)
        if draft_repo_id is not None or draft_filename is not None:
            kwargs["draft"] = hub.resolve_repo(
                draft_repo_id or repo_id, filename=draft_filename, role=hub.Role.DRAFTER, cache_dir=cache_dir,
                local_dir=local_dir if draft_repo_id in (None, repo_id) else None,
            )  # fmt: skip
        return cls(path, **kwargs)

    @compatible
    def create_completion(
        self,
        prompt: str | bytes | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = DefaultFloat(0.8),
        top_p: float = DefaultFloat(0.95),
        min_p: float = DefaultFloat(0.05),
        typical_p: float = 1.0,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | Sequence[str] | None = (),
        frequency_penalty: float = DefaultFloat(0.0),
        presence_penalty: float = DefaultFloat(0.0),
        repeat_penalty: float = DefaultFloat(1.0),
        top_k: int = DefaultInt(40),
        stream: bool = False,
        seed: int | None = None,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        stopping_criteria: object | None = None,
        logits_processor: object | None = None,
        grammar: Grammar | str | None = None,
        logit_bias: Mapping[int, float] | None = None,
        speculative: bool | Mapping[str, Any] | None = None,
        n_draft_max: int | None = None,
        draft_schedule: str | None = None,
        lookup_max: int | None = None,
        draft_conf_min: float | None = None,
        draft_sampling: str | None = None,
        draft_accept: str | None = None,
    ) -> Any:
        """Continues a prompt.

        Control tokens spelled in the prompt are read as such: it is the caller's own raw text.

        Args:
            prompt: text, UTF-8 bytes or token ids.
            max_tokens: None or negative = until the context ends; 0 = nothing is generated.
            logprobs: report log-probabilities, with that many (0 to 20) alternatives for each token.
            echo: put the prompt before the answer.
            stream: return an iterator of chunks.
            model: echoed back.
            logit_bias: ``{id: value}`` or ``[[id, value]]``; False or -inf bans.
            grammar: a ``LlamaGrammar`` that the answer follows, or its text.
            speculative: False = without drafts; True = an error if nothing drafts; or, as True, a mapping with
                ``n_max``, ``conf_min`` and ``schedule``, other names of the first three of these:
            n_draft_max, draft_conf_min, draft_schedule, lookup_max, draft_sampling, draft_accept: None = as the
                constructor was told.
            Other arguments: see ``pydspark.params.SamplingParams``.

        Returns:
            A completion like OpenAI's with ``timings`` beside ``usage``, or an iterator of chunks.

        Raises:
            ArgumentError: a value cannot be used.
            ContextFullError: the prompt does not fit. A stream raises it with its first chunk.
            UnsupportedError: something known that pydspark does not do.
            ClosedError: the model was closed.
        """
        if echo and logprobs is not None:
            raise UnsupportedError("echo with logprobs is not supported: the prompt's log-probabilities are not kept")
        rule = answer_grammar(grammar)
        params = self._sampling(
            max_tokens=max_tokens, temperature=temperature, top_p=top_p, min_p=min_p, stop=stop,
            frequency_penalty=frequency_penalty, presence_penalty=presence_penalty, repeat_penalty=repeat_penalty,
            top_k=top_k, seed=seed, logit_bias=logit_bias or (), logprobs=logprobs is not None,
            top_logprobs=logprobs or 0, speculative=speculative, n_draft_max=n_draft_max,
            draft_schedule=draft_schedule, lookup_max=lookup_max, draft_conf_min=draft_conf_min,
            draft_sampling=draft_sampling,
            draft_accept=draft_accept,
        )  # fmt: skip
        prompts = self.engine.prompts
        events = self.engine.events(prompts.encode(prompt), params, mask=prompts.mask(rule))
        echoed = prompts.text(prompt) if echo else ""
        shape = results.new_shape("cmpl", model or self.model_path, prompts.piece, params.logprobs, echoed)
        return results.completion_stream(events, shape) if stream else results.completion(events, shape)

    __call__ = create_completion

    @compatible
    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        functions: Sequence[object] | None = None,
        function_call: object | None = None,
        tools: Sequence[object] | None = None,
        tool_choice: object | None = None,
        temperature: float = DefaultFloat(0.2),
        top_p: float = DefaultFloat(0.95),
        top_k: int = DefaultInt(40),
        min_p: float = DefaultFloat(0.05),
        typical_p: float = 1.0,
        stream: bool = False,
        stop: str | Sequence[str] | None = (),
        seed: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        presence_penalty: float = DefaultFloat(0.0),
        frequency_penalty: float = DefaultFloat(0.0),
        repeat_penalty: float = DefaultFloat(1.0),
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: str | None = None,
        logits_processor: object | None = None,
        grammar: Grammar | str | None = None,
        logit_bias: Mapping[int, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        enable_thinking: bool | None = None,
        reasoning_format: str = "auto",
        speculative: bool | Mapping[str, Any] | None = None,
        n_draft_max: int | None = None,
        draft_schedule: str | None = None,
        lookup_max: int | None = None,
        draft_conf_min: float | None = None,
        draft_sampling: str | None = None,
        draft_accept: str | None = None,
    ) -> Any:
        """Answers a chat.

        Text of messages and tools never becomes control tokens.

        Args:
            messages: as in OpenAI's API; contents are text or lists of text parts.
            tools: what the model can call, as in OpenAI's API; the answer's ``tool_calls`` has its calls.
            tool_choice: None or ``"auto"``; ``"none"``: the model is not told of them; ``"required"``: it must call
                one; ``{"type": "function", "function": {"name": ...}}``: it must call this one.
            response_format: ``{"type": "json_object"}``, which may have a ``schema``, or ``{"type": "json_schema",
                "json_schema": {"schema": {...}}}``: the answer is such JSON; ``{"type": "text"}``: it may be anything.
            grammar: a ``LlamaGrammar`` that the answer follows, or its text.
            logprobs: report log-probabilities.
            top_logprobs: how many (0 to 20) alternatives for each token.
            chat_template_kwargs, enable_thinking, reasoning_format: see ``pydspark.params.ChatParams``.
            Other arguments, and errors: see ``create_completion``.

        Returns:
            A chat completion like OpenAI's with ``timings`` beside ``usage``, or an iterator of chunks.
        """
        if top_logprobs and not logprobs:
            raise ArgumentError("top_logprobs needs logprobs=True")
        params = self._sampling(
            max_tokens=max_tokens, temperature=temperature, top_p=top_p, min_p=min_p, stop=stop,
            frequency_penalty=frequency_penalty, presence_penalty=presence_penalty, repeat_penalty=repeat_penalty,
            top_k=top_k, seed=seed, logit_bias=logit_bias or (), logprobs=bool(logprobs),
            top_logprobs=top_logprobs or 0, speculative=speculative, n_draft_max=n_draft_max,
            draft_schedule=draft_schedule, lookup_max=lookup_max, draft_conf_min=draft_conf_min,
            draft_sampling=draft_sampling,
            draft_accept=draft_accept,
        )  # fmt: skip
        chat = ChatParams(
            enable_thinking=enable_thinking, reasoning_format=reasoning_format,
            chat_template_kwargs=chat_template_kwargs,
        )  # fmt: skip
        rule = answer_grammar(grammar, response_format)
        called, choice = (None, None) if tool_choice == "none" else (tools, tool_choice)
        prompt = self.engine.chat_prompt(messages, called, chat, rule, choice)
        events = self.engine.chat_events(prompt, params)
        shape = results.new_shape("chatcmpl", model or self.model_path, self.engine.prompts.piece, params.logprobs)
        return chat_results.chat_stream(events, shape) if stream else chat_results.chat(events, shape)

    @compatible
    def generate(
        self,
        tokens: Sequence[int],
        top_k: int = DefaultInt(40),
        top_p: float = DefaultFloat(0.95),
        min_p: float = DefaultFloat(0.05),
        typical_p: float = 1.0,
        temp: float = DefaultFloat(0.8),
        repeat_penalty: float = DefaultFloat(1.0),
        reset: bool = True,
        frequency_penalty: float = DefaultFloat(0.0),
        presence_penalty: float = DefaultFloat(0.0),
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        penalize_nl: bool = True,
        logits_processor: object | None = None,
        stopping_criteria: object | None = None,
        grammar: Grammar | str | None = None,
        temperature: float | None = None,
    ) -> Iterator[int]:
        """Token ids that continue ``tokens``, until an end token or the end of the context.

        Args:
            tokens: the prompt.
            temp, temperature: two names of one parameter.
            Other arguments: see ``create_completion``.
        """
        params = self._sampling(
            temperature=temp if temperature is None else temperature, top_k=top_k, top_p=top_p, min_p=min_p,
            repeat_penalty=repeat_penalty, frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
        )  # fmt: skip
        mask = self.engine.prompts.mask(answer_grammar(grammar))
        events = self.engine.events(self.engine.prompts.encode(tokens), params, mask=mask)
        return (event.id for event in events if isinstance(event, Token))

    def _sampling(self, speculative: bool | Mapping[str, Any] | None = None, **call: Any) -> SamplingParams:
        if call.get("seed") is None:
            call["seed"] = self._seed
        if speculative is not None and speculative is not False and not self.engine.speculates:
            raise ArgumentError(f"speculative={speculative!r} needs a drafter: Llama(..., draft=...)")
        drafting = drafting_options(speculative, {name: call.pop(name, None) for name in DRAFTING})
        call = {"repeat_last_n": self._last_n_tokens_size, **self._drafting, **call, **drafting}
        return self.engine.sampling(call, self._settings)

    def embed(self, *args: object, **kwargs: object) -> NoReturn:
        """Not available: raises UnsupportedError."""
        raise UnsupportedError("embeddings are not available")

    create_embedding = embed

    def set_seed(self, seed: int) -> None:
        """The seed of later calls that give none; -1 and 4294967295 = another one for each call."""
        self._seed = SamplingParams(seed=seed).seed


def _show_log() -> None:
    logger = logging.getLogger("pydspark")
    logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
