"""Text in and out of a model: vocabulary, tokenizer, chat template, detokenizer, stop strings.

Nothing here needs the compiled core: a model file's metadata comes in as a plain mapping.
"""
