"""Answers one question. Usage: python 01_generate.py [model.gguf]"""

import sys

from pydspark import Llama
from pydspark.demo import demo_model_path

path = sys.argv[1] if len(sys.argv) > 1 else demo_model_path()

with Llama(path, n_ctx=2048) as llm:
    question = [{"role": "user", "content": "Name three uses of a paper clip."}]
    result = llm.create_chat_completion(question, max_tokens=80, temperature=0, seed=1)
    print(result["choices"][0]["message"]["content"])
    print(result["usage"])
    print(f"{result['timings']['predicted_per_second']:.1f} tokens per second")
