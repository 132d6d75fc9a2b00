#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the room `weights` with transformers: equal losses and logits, equal files, no warnings.

usage: oracles.py TRIREME WEIGHTS_TOOL     exit code 77 with the reason where the packages are not there
TRIREME_ORACLES names a virtual environment with these packages. No GPU or network is needed: the models are random.
"""
import array
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

PACKAGES = ("torch", "transformers", "safetensors", "numpy")
missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
if missing:
    other = pathlib.Path(os.environ.get("TRIREME_ORACLES", "")) / "bin/python"
    if "TRIREME_ORACLES" in os.environ and other.exists() and pathlib.Path(sys.prefix) != other.parent.parent:
        os.execv(other, [str(other), *sys.argv])
    print(f"skipped: {sys.executable} has no {', '.join(missing)}; TRIREME_ORACLES=DIR names a virtual environment where they are")
    sys.exit(77)

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", CUDA_VISIBLE_DEVICES="")
import numpy as np
import safetensors.torch
import torch
import transformers

TRIREME, TOOL = sys.argv[1:3]
checked = 0


def expect(condition, what):
    global checked
    checked += 1
    if not condition:
        print(f"FAILED: {what}")
        sys.exit(1)


def run(*words, code=0):
    done = subprocess.run([TRIREME, *map(str, words)], capture_output=True, text=True, check=False)
    expect(done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def numbers(kind, model, tokens, options=()):
    done = subprocess.run([TOOL, kind, str(model), *options], input=array.array("i", tokens).tobytes(), stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, np.float32)


def random_model(seed, tied, **sizes):
    """A random GPT-2. Its weights are far from the initial values, so that every part affects the result."""
    torch.manual_seed(seed)
    ids = {"bos_token_id": None, "eos_token_id": None}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(tie_word_embeddings=tied, **{**ids, **sizes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    return model.eval()


def random_decoder(kind, seed, tied, **sizes):
    """A random model of a family with Llama's layers."""
    torch.manual_seed(seed)
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    name = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "nanochat": "NanoChat"}[kind]
    config, model = getattr(transformers, f"{name}Config"), getattr(transformers, f"{name}ForCausalLM")
    model = model(config(tie_word_embeddings=tied, **{**ids, **sizes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    return model.eval()


def halves_swapped(weight, heads):
    """Swaps the halves of each head's rows, because nanochat rotates positions in the opposite direction."""
    return weight.unflatten(0, (heads, 2, -1)).flip(1).flatten(0, 2)


def decoder_gradients(model):
    """Names and gradients, in the order and partition of our parameter table."""
    base, config = model.model, model.config
    inverse_rotation = config.model_type == "nanochat"

    def parts(name, *modules):
        yield name, torch.cat([module.weight.grad for module in modules])
        if getattr(modules[0], "bias", None) is not None:
            yield f"{name}, biases", torch.cat([module.bias.grad for module in modules])

    yield from parts("embed_tokens", base.embed_tokens)
    for i, layer in enumerate(base.layers):
        a, m = layer.self_attn, layer.mlp
        if not inverse_rotation:
            yield from parts(f"{i} input_layernorm", layer.input_layernorm)
            yield from parts(f"{i} q, k, v", a.q_proj, a.k_proj, a.v_proj)
        else:
            yield f"{i} q, k, v", torch.cat([halves_swapped(a.q_proj.weight.grad, config.num_attention_heads),
                                             halves_swapped(a.k_proj.weight.grad, config.num_key_value_heads), a.v_proj.weight.grad])
        if config.model_type == "qwen3":
            yield from parts(f"{i} q_norm", a.q_norm)
            yield from parts(f"{i} k_norm", a.k_norm)
        yield from parts(f"{i} o", a.o_proj)
        if inverse_rotation:
            yield from parts(f"{i} fc1", m.fc1)
            yield from parts(f"{i} fc2", m.fc2)
            continue
        yield from parts(f"{i} post_attention_layernorm", layer.post_attention_layernorm)
        yield from parts(f"{i} gate, up", m.gate_proj, m.up_proj)
        yield from parts(f"{i} down", m.down_proj)
    if not inverse_rotation:
        yield from parts("norm", base.norm)
    if not config.tie_word_embeddings:
        yield from parts("lm_head", model.lm_head)


def gpt2_gradients(model):
    """Like decoder_gradients. transformers stores the weights of GPT-2's linear layers as [in, out]."""
    base = model.transformer
    yield "wte", base.wte.weight.grad
    yield "wpe", base.wpe.weight.grad
    for i, block in enumerate(base.h):
        for name, part in (("ln_1", block.ln_1), ("c_attn", block.attn.c_attn), ("attn.c_proj", block.attn.c_proj),
                           ("ln_2", block.ln_2), ("c_fc", block.mlp.c_fc), ("mlp.c_proj", block.mlp.c_proj)):
            yield f"{i} {name}", part.weight.grad.T if part.weight.dim() == 2 else part.weight.grad
            yield f"{i} {name}, biases", part.bias.grad
    yield "ln_f", base.ln_f.weight.grad
    yield "ln_f, biases", base.ln_f.bias.grad
    if not model.config.tie_word_embeddings:
        yield "lm_head", model.lm_head.weight.grad


def compare_gradients(name, theirs, ours, tokens, options=()):
    theirs.zero_grad()
    logits = theirs(torch.tensor([tokens[:-1]])).logits[0]
    torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[1:])).backward()
    got, worst = numbers("gradients", ours, tokens, options), 0
    for part_name, expected in (gpt2_gradients if theirs.config.model_type == "gpt2" else decoder_gradients)(theirs):
        flat = expected.flatten().numpy()
        part, got = got[:flat.size], got[flat.size:]
        off = np.abs(part - flat).max() / np.abs(flat).max()
        expect(off < 1e-5, f"{name}: the gradient of {part_name} differs by {off} of its largest element")
        worst = max(worst, off)
    expect(got.size == 0, f"{name}: as many gradients")
    print(f"{name}: gradients within {worst:.1e} of the largest element of each parameter")


def load_without_warnings(folder, **options):
    """Loads a model in a separate process, which returns all warnings of Python and of the library's log."""
    script = ("import sys, warnings; warnings.simplefilter('error'); import transformers; "
              "transformers.utils.logging.set_verbosity_info(); "
              "m, told = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True); "
              "bad = {k: sorted(map(str, v)) for k, v in told.items() if v}; print('FINDINGS', bad)")
    done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=False)
    expect(done.returncode == 0 and "FINDINGS {}" in done.stdout, f"{folder} loads whole: {done.stdout}{done.stderr}")
    warned = [line for line in done.stderr.splitlines() if any(word in line.lower() for word in ("warn", "deprecat", "newly initialized", "not used", "mismatch"))]
    expect(not warned, f"{folder} loads without a warning: {warned}")
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()


def compare_numbers(name, theirs, ours, tokens_of, context, vocabulary, options=()):
    tokens = tokens_of(context)
    with torch.no_grad():
        expected = theirs(torch.tensor([tokens])).logits[0].numpy()
    got = numbers("logits", ours, tokens, options).reshape(context, vocabulary)
    worst = np.abs(got - expected).max()
    expect(worst < 1e-5 * max(1, np.abs(expected).max()), f"{name}: logits differ by {worst}")
    rows = -(-10_000 // context)
    many = np.array(tokens_of(rows * (context + 1))).reshape(rows, context + 1)
    with torch.no_grad():
        logits = theirs(torch.tensor(many[:, :-1])).logits.double()
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), torch.tensor(many[:, 1:]).reshape(-1)).item()
    mine = numbers("losses", ours, many.reshape(-1).tolist(), options).astype(np.float64).mean()
    expect(abs(mine - loss) < 1e-6 * abs(loss), f"{name}: loss {mine} and {loss}")
    print(f"{name}: logits within {worst:.1e} (largest {np.abs(expected).max():.1f}), loss of {rows * context} tokens {loss:.7f} within {abs(mine / loss - 1):.1e}")


def same_tensors(name, one, two):
    a, b = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (one, two))
    expect(set(a) == set(b), f"{name}: the same names")
    expect(all(torch.equal(a[key].view(torch.int32), b[key].view(torch.int32)) for key in a), f"{name}: the same bits")


def check_model(folder, name, tied, tokenizer="bytes", **sizes):
    """Importing gives the same numbers, exporting the same bits, and loading the export the same numbers."""
    theirs = random_model(len(name), tied, **sizes)
    draw = np.random.default_rng(7)
    vocabulary, context = sizes["vocab_size"], sizes["n_positions"]
    tokens_of = lambda count: draw.integers(0, vocabulary, count).tolist()
    source, imported, exported, llmc = (folder / f"{name}-{part}" for part in ("source", "run", "out", "llmc"))
    theirs.save_pretrained(source)
    run("import", source, "--output", imported, "--tokenizer", tokenizer)
    compare_numbers(f"{name}, imported", theirs, imported, tokens_of, context, vocabulary)
    compare_gradients(f"{name}, imported", theirs, imported, tokens_of(context + 1))
    run("export", imported, "--format", "huggingface", "--output", exported)
    same_tensors(name, source, exported)
    again = load_without_warnings(exported)
    tokens = torch.tensor([tokens_of(context)])
    with torch.no_grad():
        expect(torch.equal(theirs(tokens).logits, again(tokens).logits), f"{name}: transformers' logits of both are equal")
    if tied and theirs.config.activation_function == "gelu_new":
        run("export", imported, "--format", "llm.c", "--output", llmc)
        compare_numbers(f"{name}, by way of llm.c", theirs, llmc, tokens_of, context, vocabulary)


def check_decoder(folder, name, tied, spelling=None, kind="llama", **sizes):
    """Like check_model, and also checks gradients. `spelling` rewrites config.json in the form of older files."""
    theirs = random_decoder(kind, len(name), tied, **sizes)
    draw = np.random.default_rng(8)
    vocabulary, context = sizes["vocab_size"], sizes["max_position_embeddings"]
    tokens_of = lambda count: draw.integers(0, vocabulary, count).tolist()
    source, imported, exported, again = (folder / f"{name}-{part}" for part in ("source", "run", "out", "again"))
    theirs.save_pretrained(source)
    if spelling:
        config = json.loads((source / "config.json").read_text())
        spelling(config)
        (source / "config.json").write_text(json.dumps(config))
    run("import", source, "--output", imported, "--tokenizer", "bytes" if vocabulary >= 256 else "none")
    compare_numbers(name, theirs, imported, tokens_of, context, vocabulary)
    compare_gradients(name, theirs, imported, tokens_of(context + 1))
    run("export", imported, "--format", "huggingface", "--output", exported)
    same_tensors(name, source, exported)
    run("import", exported, "--output", folder / f"{name}-run2", "--tokenizer", "bytes" if vocabulary >= 256 else "none")
    run("export", folder / f"{name}-run2", "--format", "huggingface", "--output", again)
    expect((exported / "config.json").read_bytes() == (again / "config.json").read_bytes(), f"{name}: the same config.json")
    loaded = load_without_warnings(exported)
    tokens = torch.tensor([tokens_of(context)])
    with torch.no_grad():
        expect(torch.equal(theirs(tokens).logits, loaded(tokens).logits), f"{name}: transformers' logits of both are equal")


def document_starts(tokens, document):
    """For each position, the position of the token that begins its document, or 0 before the first such token. tokens = [rows, T]"""
    places = torch.where(tokens == document, torch.arange(tokens.shape[1]), 0)
    return torch.cummax(places, 1).values


class Sight:
    """Overrides the attention mask of a transformers model, with a separate mask for each layer."""

    def __init__(self, theirs, windows, document):
        self.windows, self.document, self.on = windows, document, True
        base = theirs.transformer if theirs.config.model_type == "gpt2" else theirs.model
        base.register_forward_pre_hook(self.take_tokens, with_kwargs=True)
        layers = base.h if theirs.config.model_type == "gpt2" else base.layers
        for layer, window in zip(layers, windows, strict=True):
            attention = layer.attn if theirs.config.model_type == "gpt2" else layer.self_attn
            attention.register_forward_pre_hook(lambda _, words, named, window=window: self.replace(words, named, window), with_kwargs=True)

    def take_tokens(self, _, words, named):
        self.tokens = named["input_ids"] if named.get("input_ids") is not None else words[0]

    def replace(self, words, named, window):
        expect("attention_mask" in named, "transformers names the mask of an attention layer attention_mask")
        if not self.on:
            return None
        at = torch.arange(self.tokens.shape[1])
        first = torch.zeros_like(self.tokens) if self.document is None else document_starts(self.tokens, self.document)
        if window:
            first = torch.maximum(first, at - window + 1)
        seen = (at <= at[:, None]) & (at >= first[:, :, None])
        mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        return words, {**named, "attention_mask": mask[:, None]}


def check_sight(folder, name, kind, tied, window, layers, document, **sizes):
    """Logits, losses and gradients of a model with documents that do not see each other, and with windows in the layers marked S."""
    theirs = random_model(len(name), tied, **sizes) if kind == "gpt2" else random_decoder(kind, len(name), tied, **sizes)
    vocabulary = sizes["vocab_size"]
    context = sizes["n_positions" if kind == "gpt2" else "max_position_embeddings"]
    draw = np.random.default_rng(9)

    def tokens_of(count):
        tokens = draw.integers(0, vocabulary, count)
        if document is not None:
            tokens[draw.random(count) < 0.03] = document
        return tokens.tolist()

    source, imported = folder / f"{name}-source", folder / f"{name}-run"
    theirs.save_pretrained(source)
    run("import", source, "--output", imported, "--tokenizer", "none")
    options = ([f"window={window}", f"layers={layers}"] if window else []) + ([f"document={document}"] if document is not None else [])
    sight = Sight(theirs, [window if letter == "S" else 0 for letter in layers], document)
    compare_numbers(name, theirs, imported, tokens_of, context, vocabulary, options)
    compare_gradients(name, theirs, imported, tokens_of(context + 1), options)
    tokens = torch.tensor([tokens_of(context)])
    with torch.no_grad():
        hidden = theirs(tokens).logits
        sight.on = False
        expect((theirs(tokens).logits - hidden).abs().max() > 0.1, f"{name}: the masks matter")


def check_packed(folder, name, kind, document, **sizes):
    """transformers' packed form of documents, with position ids that start again; here some layers also have windows."""
    theirs = random_decoder(kind, len(name), False, **sizes)
    context, vocabulary = sizes["max_position_embeddings"], sizes["vocab_size"]
    draw = np.random.default_rng(10)
    tokens = draw.integers(0, vocabulary, context)
    tokens[draw.random(context) < 0.03] = document
    source, imported = folder / f"{name}-source", folder / f"{name}-run"
    theirs.save_pretrained(source)
    run("import", source, "--output", imported, "--tokenizer", "none")
    row = torch.tensor(tokens)[None]
    places = torch.arange(context) - document_starts(row, document)
    with torch.no_grad():
        expected = theirs(row, position_ids=places, use_cache=False).logits[0].numpy()
        expect(np.abs(theirs(row).logits[0].numpy() - expected).max() > 0.1, f"{name}: the documents matter")
    got = numbers("logits", imported, tokens.tolist(), [f"document={document}"]).reshape(context, vocabulary)
    worst = np.abs(got - expected).max()
    expect(worst < 1e-5 * max(1, np.abs(expected).max()), f"{name}: logits differ by {worst}")
    print(f"{name}: logits within {worst:.1e} of those with positions that begin again ({int((tokens == document).sum())} documents begin)")


def older_spelling(config):
    """rope_theta and rope_scaling as separate keys, as in transformers up to version 4."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None


def check_roles(folder):
    """A folder like Llama 3's, with several end tokens and other ids in generation_config.json."""
    source, out = folder / "roles", folder / "roles-out"
    config = {"bos_token_id": 280, "eos_token_id": [281, 289], "pad_token_id": 284}
    random_decoder("llama", 1, True, hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2, vocab_size=300,
                   max_position_embeddings=16, **config).save_pretrained(source)
    generation = json.loads((source / "generation_config.json").read_text())
    (source / "generation_config.json").write_text(json.dumps({**generation, "eos_token_id": [281, 288, 289]}))
    run("import", source, "--output", folder / "roles-run", "--tokenizer", "none")
    run("export", folder / "roles-run", "--format", "huggingface", "--output", out)
    theirs = load_without_warnings(out)
    for found in (theirs.config, theirs.generation_config):
        expect((found.bos_token_id, found.eos_token_id, found.pad_token_id) == (280, [281, 288, 289], 284), f"roles come back: {found}")


def gguf_tensors_of(model):
    """Tensors with llama.cpp's names and order of rows, in fp32."""
    import gguf
    config, kind = model.config, model.config.model_type
    arch = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}[kind]
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if kind == "gpt2" and value.dim() == 2 and ".c_" in name:
            value = value.T
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", getattr(config, "num_key_value_heads", 0))):
            if kind == "llama" and part in name:
                value = value.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        yield names.get_name(name, try_suffixes=(".weight", ".bias")), value.float().numpy()


class LlamaCpp:
    """Runs a model in llama.cpp's server."""

    def __init__(self, path, context):
        import xllamacpp
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx, parameters.n_parallel, parameters.warmup, parameters.n_gpu_layers = context, 1, False, 0
        parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
        parameters.verbosity = -1
        self.server = xllamacpp.Server(parameters)

    def ask(self, path, **words):
        request = urllib.request.Request(self.server.listening_address + path, json.dumps(words).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))

    def tokens(self, text):
        return self.ask("/tokenize", content=text, add_special=False)["tokens"]

    def continued(self, tokens, count):
        words = {"temperature": 0, "cache_prompt": False, "return_tokens": True, "ignore_eos": True}
        return self.ask("/completion", prompt=tokens, n_predict=count, **words)["tokens"]


def make_tokenizer(pattern, text, made):
    """Creates a folder with a tokenizer of 500 tokens. Returns the encoder of the other library."""
    if not pattern.startswith("sentencepiece"):
        run("tokenizer", "train", "--text", text, "--vocabulary", 500, "--pattern", pattern, "--output", made)
        return transformers.PreTrainedTokenizerFast(tokenizer_file=str(made / "tokenizer.json")).encode
    import sentencepiece
    made.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(made / "tokenizer"), vocab_size=500, model_type="bpe", byte_fallback=True, split_digits=True,
        allow_whitespace_only_pieces=True, normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.9995, minloglevel=2)
    (made / "tokenizer.vocab").unlink()
    encode = sentencepiece.SentencePieceProcessor(model_file=str(made / "tokenizer.model")).encode
    if pattern == "sentencepiece-listed":  # as in tokenizer.json
        model = made.with_name(made.name + "-model")
        random_decoder("llama", 1, True, hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2, vocab_size=500,
                       max_position_embeddings=16).save_pretrained(model)
        run("import", model, "--output", f"{model}-run", "--tokenizer", made)
        run("export", f"{model}-run", "--format", "huggingface", "--output", f"{model}-out")
        (made / "tokenizer.model").unlink()
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (made / name).write_bytes(pathlib.Path(f"{model}-out", name).read_bytes())
    return encode


def check_gguf(folder, kind, pattern, **sizes):
    """gguf reads the same values as torch, in all types. llama.cpp continues and tokenizes texts as transformers does."""
    import gguf
    name = f"gguf-{kind}-{pattern}{'-' + sizes['rope_parameters']['rope_type'] if 'rope_parameters' in sizes else ''}"
    source, made = folder / name, folder / f"{name}-tokenizer"
    text = pathlib.Path(__file__).read_text(encoding="utf-8")
    (folder / "text").write_text(text, encoding="utf-8")
    encode = make_tokenizer(pattern, folder / "text", made)
    theirs = random_model(1, True, **sizes) if kind == "gpt2" else random_decoder(kind, 1, kind == "qwen2", **sizes)
    theirs.save_pretrained(source)
    run("import", source, "--output", folder / f"{name}-run", "--tokenizer", made)
    expected = dict(gguf_tensors_of(theirs))
    for dtype, kind_of in (("fp32", "F32"), ("fp16", "F16"), ("bf16", "BF16"), ("q8_0", "Q8_0")):
        out = folder / f"{name}-{dtype}"
        run("export", folder / f"{name}-run", "--format", "gguf", "--dtype", dtype, "--output", out)
        reader = gguf.GGUFReader(out / "model.gguf")
        found = {tensor.name: tensor for tensor in reader.tensors}
        divisors = found.pop("rope_freqs.weight", None)
        expect((divisors is not None) == ("llama3" in name and "rope_parameters" in sizes), f"{name}: divisors of frequencies")
        expect(set(found) == set(expected), f"{name}: {set(found) ^ set(expected)}")
        for key, value in expected.items():
            wanted = kind_of if value.ndim > 1 and key != "position_embd.weight" else "F32"
            expect(found[key].tensor_type.name == wanted, f"{name}: {key} is {found[key].tensor_type.name}")
            expect(list(found[key].shape) == list(value.shape)[::-1], f"{name}: the shape of {key}")
            bits = gguf.quants.quantize(value, found[key].tensor_type)
            expect(np.array_equal(np.ascontiguousarray(found[key].data).view(np.uint8).reshape(-1), np.ascontiguousarray(bits).view(np.uint8).reshape(-1)),
                   f"{name}: the bits of {key} as {wanted}")
        field = reader.get_field("tokenizer.ggml.tokens")
        expect(len(field.data) == sizes["vocab_size"], f"{name}: a token for each row")
    print(f"{name}: gguf reads the same bits in four types")
    if importlib.util.find_spec("xllamacpp") is None:
        return print(f"{name}: skipped llama.cpp: {sys.executable} has no xllamacpp")
    context = sizes["n_positions" if kind == "gpt2" else "max_position_embeddings"]
    model = LlamaCpp(folder / f"{name}-fp32" / "model.gguf", context)
    sample = text[:6000] + "don't 12345 I'LL\r\n\n  naïve Straße 東京\t  x"
    expect(model.tokens(sample) == encode(sample), f"{name}: the same tokens of a text")
    ends = [token for token, text in enumerate(reader.get_field("tokenizer.ggml.tokens").contents()) if text in ("<|endoftext|>", "</s>")]
    expect(ends == [reader.get_field("tokenizer.ggml.eos_token_id").contents()], f"{name}: the end of a text")
    same = 0
    for seed in range(8):
        prompt = np.random.default_rng(seed).integers(0, 500, 20).tolist()
        continued = model.continued(prompt, 40)
        with torch.no_grad():
            logits = theirs(torch.tensor([prompt + continued])).logits[0, 19:-1]
        logits[:, ends] = -torch.inf  # llama.cpp was told to ignore these
        expect(len(continued) == 40, f"{name}: 40 tokens")
        # llama.cpp looks up GELU in an fp16 table, so it may choose another token if two are close.
        behind = logits.max(1).values - logits[torch.arange(40), torch.tensor(continued)]
        expect(behind.max() < 0.01, f"{name}: a token of llama.cpp is {behind.max()} below the best one of transformers")
        same += int((behind == 0).sum())
    print(f"{name}: {same} of 320 greedy tokens of llama.cpp are those of transformers")


def check_ggufs(folder):
    if importlib.util.find_spec("gguf") is None:
        return print(f"skipped GGUF: {sys.executable} has no gguf")
    llama = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
             "max_position_embeddings": 256, "vocab_size": 512}
    scaled = {"rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
    check_gguf(folder, "gpt2", "gpt2", n_layer=2, n_head=2, n_embd=64, n_positions=128, vocab_size=512)
    check_gguf(folder, "llama", "llama3", **llama, rope_parameters={**scaled, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0})
    check_gguf(folder, "llama", "o200k", **llama, attention_bias=True, mlp_bias=True)
    if importlib.util.find_spec("sentencepiece") is not None:
        for pattern in ("sentencepiece", "sentencepiece-listed"):
            check_gguf(folder, "llama", pattern, **llama)
    check_gguf(folder, "qwen2", "qwen2", **llama, rope_parameters={**scaled, "rope_type": "yarn", "attention_factor": 1.3})
    check_gguf(folder, "qwen3", "smollm", **llama, head_dim=32, rope_parameters={"rope_theta": 10000.0, "rope_type": "linear", "factor": 4.0})


def check_dtypes(folder):
    """bf16 and fp16 files are read exactly. bf16 is written with torch's rounding."""
    theirs = random_model(3, True, n_layer=2, n_head=2, n_embd=32, n_positions=16, vocab_size=256)
    theirs.save_pretrained(folder / "fp32")
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        rounded = random_model(3, True, n_layer=2, n_head=2, n_embd=32, n_positions=16, vocab_size=256).to(dtype)
        rounded.save_pretrained(folder / name)
        run("import", folder / name, "--output", folder / f"{name}-run", "--tokenizer", "bytes")
        run("export", folder / f"{name}-run", "--format", "huggingface", "--output", folder / f"{name}-out")
        mine = safetensors.torch.load_file(folder / f"{name}-out/model.safetensors")
        expect(all(torch.equal(mine[key], value.float()) for key, value in safetensors.torch.load_file(folder / name / "model.safetensors").items()),
               f"{name}: read exactly")
    run("import", folder / "fp32", "--output", folder / "fp32-run", "--tokenizer", "bytes")
    run("export", folder / "fp32-run", "--format", "huggingface", "--dtype", "bf16", "--output", folder / "rounded")
    rounded, expected = (safetensors.torch.load_file(folder / f"{part}/model.safetensors") for part in ("rounded", "bfloat16"))
    expect(all(torch.equal(rounded[key], value) for key, value in expected.items()), "bf16 is written as torch rounds it")
    run("import", folder / "rounded", "--output", folder / "rounded-run", "--tokenizer", "bytes")  # checks its hashes
    expect(load_without_warnings(folder / "rounded").dtype == torch.bfloat16, "transformers takes the dtype from config.json")


def check_shards(folder):
    theirs = random_model(5, True, n_layer=3, n_head=2, n_embd=32, n_positions=16, vocab_size=300)
    theirs.save_pretrained(folder / "sharded", max_shard_size="60KB")
    expect((folder / "sharded/model.safetensors.index.json").exists(), "transformers wrote shards")
    run("import", folder / "sharded", "--output", folder / "sharded-run", "--tokenizer", "none")
    run("export", folder / "sharded-run", "--format", "huggingface", "--output", folder / "sharded-out", "--shard-bytes", 60000)
    again = load_without_warnings(folder / "sharded-out")
    a, b = theirs.state_dict(), again.state_dict()
    expect(all(torch.equal(a[key], b[key]) for key in a), "shards hold the same bits")
    index = json.loads((folder / "sharded-out/model.safetensors.index.json").read_text())
    expect(len(set(index["weight_map"].values())) > 2 and index["metadata"]["total_size"] == 4 * theirs.num_parameters(), "an index of all bytes")


def check_tokenizer(folder):
    """A trained vocabulary is exported with the model and gives the same ids there."""
    text = pathlib.Path(__file__).read_text(encoding="utf-8")
    (folder / "text").write_text(text, encoding="utf-8")
    for pattern in ("gpt2", "llama3"):
        made = folder / f"tokenizer-{pattern}"
        run("tokenizer", "train", "--text", folder / "text", "--vocabulary", 400, "--pattern", pattern, "--output", made)
        theirs = random_model(6, True, n_layer=1, n_head=2, n_embd=16, n_positions=64, vocab_size=512)
        theirs.save_pretrained(folder / f"m-{pattern}")
        run("import", folder / f"m-{pattern}", "--output", folder / f"m-{pattern}-run", "--tokenizer", made)
        run("export", folder / f"m-{pattern}-run", "--format", "huggingface", "--output", folder / f"m-{pattern}-out")
        ours = transformers.AutoTokenizer.from_pretrained(folder / f"m-{pattern}-out")
        direct = transformers.PreTrainedTokenizerFast(tokenizer_file=str(made / "tokenizer.json"))
        expect(ours.encode(text) == direct.encode(text) and len(ours) <= 512, f"{pattern}: the same ids")
        expect(ours.decode(ours.encode(text)) == text and ours.eos_token == "<|endoftext|>", f"{pattern}: text comes back")
        run("export", folder / f"m-{pattern}-run", "--format", "huggingface", "--rows", "tokenizer", "--output", folder / f"m-{pattern}-cut")
        cut = load_without_warnings(folder / f"m-{pattern}-cut")
        expect(cut.config.vocab_size == len(ours) == 400 and cut.config.eos_token_id == ours.eos_token_id, f"{pattern}: rows of tokens alone")
        expect(torch.equal(cut.transformer.wte.weight, theirs.transformer.wte.weight[:400]), f"{pattern}: the rows are the first ones")


def check_sights(folder, llama, qwen3, nanochat):
    """Rows of 150 tokens, so that windows and documents end both inside and outside of the first tiles of 64."""
    long, few = {"max_position_embeddings": 150}, {"vocab_size": 70}
    gpt2 = {"n_layer": 3, "n_head": 4, "n_embd": 48, "n_positions": 150, **few}
    llama, qwen3, nanochat = ({**sizes, **long, **few, "num_key_value_heads": 2} for sizes in (llama, qwen3, nanochat))
    check_sight(folder, "gpt2-window", "gpt2", True, 20, "SSS", None, **gpt2)
    check_sight(folder, "gpt2-documents", "gpt2", False, 0, "LLL", 5, **gpt2)
    check_sight(folder, "gpt2-both", "gpt2", True, 70, "SLS", 5, **gpt2)
    check_sight(folder, "llama-window", "llama", True, 64, "SLS", None, **llama)
    check_sight(folder, "llama-documents", "llama", False, 0, "LLL", 5, **llama)
    check_sight(folder, "llama-both", "llama", False, 13, "SSL", 0, **llama)
    check_sight(folder, "qwen3-documents", "qwen3", True, 0, "LLL", 69, **qwen3)
    check_sight(folder, "qwen3-both", "qwen3", False, 65, "LSS", 5, **qwen3)
    check_sight(folder, "nanochat-window", "nanochat", False, 20, "SSL", None, **nanochat)
    check_sight(folder, "nanochat-both", "nanochat", False, 70, "SSL", 5, **nanochat)
    # Qwen3's config.json supports windows, so this needs no mask of ours.
    slides = {"use_sliding_window": True, "sliding_window": 21, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
    check_decoder(folder, "qwen3-slides", False, kind="qwen3", **qwen3, **slides)
    check_packed(folder, "llama-packed", "llama", 5, **llama)
    check_packed(folder, "qwen3-packed", "qwen3", 5, **qwen3, **slides)
    check_packed(folder, "nanochat-packed", "nanochat", 5, **nanochat)


def main():
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_model(folder, "bytes", True, n_layer=3, n_head=4, n_embd=48, n_positions=32, vocab_size=256)
        check_model(folder, "padded", True, n_layer=2, n_head=2, n_embd=64, n_positions=50, vocab_size=300)
        check_model(folder, "untied", False, n_layer=2, n_head=3, n_embd=36, n_positions=24, vocab_size=257)
        llama = {"hidden_size": 64, "intermediate_size": 88, "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 48}
        scaled = {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 16}
        check_decoder(folder, "llama", False, num_key_value_heads=2, vocab_size=300, rms_norm_eps=1e-5, **llama)
        check_decoder(folder, "llama-3.1", True, num_key_value_heads=1, vocab_size=300, rope_parameters=scaled, **llama)
        check_decoder(folder, "llama-older", True, older_spelling, num_key_value_heads=2, vocab_size=257, rope_parameters=scaled, **llama)
        check_decoder(folder, "llama-biased", False, older_spelling, num_key_value_heads=4, vocab_size=130, attention_bias=True, mlp_bias=True, **llama)
        qwen3 = {**llama, "head_dim": 24, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0}
        check_decoder(folder, "qwen3", False, kind="qwen3", num_key_value_heads=2, vocab_size=300, **qwen3)
        check_decoder(folder, "qwen3-tied", True, older_spelling, "qwen3", num_key_value_heads=4, vocab_size=257, **qwen3)
        yarn = {"rope_theta": 10000.0, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
        check_decoder(folder, "llama-linear", False, num_key_value_heads=2, vocab_size=300, rope_parameters={"rope_theta": 10000.0, "rope_type": "linear", "factor": 3.0}, **llama)
        check_decoder(folder, "llama-yarn", False, older_spelling, num_key_value_heads=2, vocab_size=300, rope_parameters={**yarn, "beta_fast": 16.0, "mscale": 2.0, "mscale_all_dim": 1.0}, **llama)
        check_decoder(folder, "qwen3-yarn", True, None, "qwen3", num_key_value_heads=2, vocab_size=300, **{**llama, "head_dim": 24}, rope_parameters=yarn)
        check_decoder(folder, "mistral", False, kind="mistral", num_key_value_heads=2, vocab_size=300, sliding_window=17, **llama)
        check_decoder(folder, "mistral-whole", True, older_spelling, "mistral", num_key_value_heads=4, vocab_size=257, sliding_window=None, head_dim=24, **llama)
        check_decoder(folder, "qwen2", False, kind="qwen2", num_key_value_heads=2, vocab_size=300, rope_parameters={**yarn, "attention_factor": 1.5}, **llama)
        check_decoder(folder, "qwen2-tied", True, older_spelling, "qwen2", num_key_value_heads=4, vocab_size=257, rope_theta=1000000.0, **llama,
                      use_sliding_window=True, sliding_window=21, max_window_layers=1)
        nanochat = {**llama, "rms_norm_eps": 2.0**-23, "rope_theta": 100000.0}
        check_decoder(folder, "nanochat", False, kind="nanochat", num_key_value_heads=4, vocab_size=300, **nanochat)
        check_decoder(folder, "nanochat-grouped", False, older_spelling, "nanochat", num_key_value_heads=2, vocab_size=130, **nanochat)
        check_model(folder, "squared", True, "bytes", n_layer=2, n_head=2, n_embd=32, n_positions=16, vocab_size=256, activation_function="relu2",
                    n_inner=80, layer_norm_epsilon=1e-6)
        check_sights(folder, llama, qwen3, nanochat)
        check_roles(folder)
        check_ggufs(folder)
        check_dtypes(folder)
        check_shards(folder)
        check_tokenizer(folder)
    print(f"{checked} comparisons, all good")


if __name__ == "__main__":
    main()
