"""``dspark-server``: a model behind OpenAI's, Anthropic's and llama-server's HTTP interfaces."""
