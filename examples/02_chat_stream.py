"""A chat that prints each answer while it is made. Usage: python 02_chat_stream.py [model.gguf]

An empty line ends the chat. What the model has read already is not evaluated again on the next turn.
"""

import sys

from pydspark import Llama
from pydspark.demo import demo_model_path

path = sys.argv[1] if len(sys.argv) > 1 else demo_model_path()

with Llama(path, n_ctx=2048) as llm:
    messages = []
    while text := input("> "):
        messages.append({"role": "user", "content": text})
        answer = ""
        for chunk in llm.create_chat_completion(messages, max_tokens=120, stream=True):
            piece = chunk["choices"][0]["delta"].get("content", "")
            print(piece, end="", flush=True)
            answer += piece
        print()
        messages.append({"role": "assistant", "content": answer})
