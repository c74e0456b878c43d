"""Text: corpora, recurrent cells, language models, perplexity, generation, export."""
