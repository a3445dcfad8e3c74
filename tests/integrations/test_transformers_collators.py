"""The replacements for transformers' data collators, compared with the originals."""

import functools
import importlib
import pickle

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

import pinfeed
from messages import check
from pinfeed.integrations import transformers as ours
from programs import run_program
from trainers import arguments_in

NAMES = [name for name in ours.__all__ if name.startswith("DataCollator")]
TOKENS = st.integers(0, 9)  # 0 is the padding token, which a text can contain


def tokenizer_of(side="right", **options):
    return ByT5Tokenizer(padding_side=side, **options)


def assert_same_batch(batch, expected):
    assert type(batch) is type(expected)
    assert batch.keys() == expected.keys()
    for key, entry in expected.items():
        actual = batch[key]
        if isinstance(entry, torch.Tensor):
            assert actual.dtype == entry.dtype, key
            assert torch.equal(actual, entry), (key, actual, entry)
        else:
            assert type(actual) is type(entry)
            assert actual == entry


CONVERTERS = {
    "lists": lambda entry: entry,
    "ndarrays": np.array,
    "int32": lambda entry: np.array(entry, np.int32 if np.array(entry).dtype == np.int64 else None),
    "tensors": torch.tensor,
}


@st.composite
def features_of(
    draw, labels, least=1, columns=("attention_mask", "token_type_ids", "special_tokens_mask")
):
    """Returns features with the entries of a tokenizer and ``labels``; each takes a number of tokens, and a
    number that is the same for all features.
    """
    keys = draw(st.sets(st.sampled_from(columns))) if columns else ()
    kind = draw(st.sampled_from([*CONVERTERS]))
    convert = CONVERTERS[kind]
    same = draw(st.integers(1, 3))
    # transformers returns float32 tokens if all features are empty.
    lengths = draw(st.lists(st.integers(least, 6), min_size=1, max_size=5).filter(any))
    if kind != "lists" and lengths[0] == 0:
        lengths.sort(reverse=True)  # or if it can't infer the type of the first one
    features = []
    for length in lengths:
        entries = {"input_ids": draw(st.lists(TOKENS, min_size=length, max_size=length))}
        entries |= {
            key: draw(st.lists(TOKENS, min_size=length, max_size=length)) for key in sorted(keys)
        }
        entries |= draw(labels(length, same))
        features.append({key: convert(entry) for key, entry in entries.items()})
    return features


OPTIONS = st.fixed_dictionaries(
    {
        "padding": st.sampled_from([True, "longest", "max_length"]),
        "max_length": st.just(9),
        "pad_to_multiple_of": st.sampled_from([None, 1, 4]),
    }
)
SIDES = st.sampled_from(["right", "left"])


def compare(name, side, features, call=None, **options):
    tokenizer = tokenizer_of(side)
    made = [getattr(module, name)(tokenizer, **options) for module in (transformers, ours)]
    expected, batch = (collator(features, **(call or {})) for collator in made)
    assert_same_batch(batch, expected)
    again = pickle.loads(pickle.dumps(made[1]))(features)
    assert again.keys() == batch.keys()


NUMBERS = {
    "label": lambda same: st.integers(0, 3),
    "label_ids": lambda same: st.lists(st.integers(0, 3), min_size=same, max_size=same),
    "labels": lambda same: st.lists(st.sampled_from([0.0, 1.0]), min_size=same, max_size=same),
    "score": lambda same: st.floats(-9, 9, width=32),
    "boxes": lambda same: st.just([[1, 2]] * same),
    "flag": lambda same: st.booleans(),
}


@pytest.mark.filterwarnings("ignore:.*max_length. is ignored when")  # by transformers
@given(st.data(), st.sets(st.sampled_from([*NUMBERS])), SIDES, OPTIONS)
def test_with_padding(data, keys, side, options):
    entries = lambda length, same: st.fixed_dictionaries(
        {k: NUMBERS[k](same) for k in sorted(keys)}
    )
    compare("DataCollatorWithPadding", side, data.draw(features_of(entries, 0)), **options)


@pytest.mark.filterwarnings("ignore:.*max_length. is ignored when")
@given(st.data(), st.sampled_from(["label", "labels", None]), SIDES, OPTIONS)
def test_token_classification(data, name, side, options):
    def labels(length, same):
        numbers = st.lists(TOKENS, min_size=0, max_size=max(length - same + 1, 0))
        return st.just({}) if name is None else st.fixed_dictionaries({name: numbers})

    features = data.draw(features_of(labels))
    compare("DataCollatorForTokenClassification", side, features, **options, label_pad_token_id=-1)


@pytest.mark.parametrize("side", ["right", "left"])
def test_pad_truncates_like_a_tokenizer(side):
    texts = ["a longer text", "b", "three"]
    tokenizer = tokenizer_of(side, truncation_side=side)
    expected = tokenizer(
        texts,
        add_special_tokens=False,
        padding=True,
        truncation=True,
        max_length=4,
        return_tensors="pt",
    )
    field = pinfeed.Pad(
        pad_value=0, side=side, max_length=4, mask="attention_mask", mask_dtype=torch.int64
    )
    samples = [
        {"input_ids": tokenizer(text, add_special_tokens=False)["input_ids"]} for text in texts
    ]
    batch = pinfeed.Collate({"input_ids": field})(samples)
    for key, entry in expected.items():
        assert torch.equal(batch[key], entry), key


class Decoder:
    """A model that prepares decoder_input_ids."""

    def prepare_decoder_input_ids_from_labels(self, labels):
        return labels.clamp(min=0)


@pytest.mark.filterwarnings("ignore:.*max_length. is ignored when")
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy")
@given(
    st.data(),
    st.sampled_from(["label", "labels", "None", None]),
    SIDES,
    OPTIONS,
    st.sampled_from([None, Decoder(), object()]),
)
def test_seq2seq(data, name, side, options, model):
    numbers = st.fixed_dictionaries({name: st.lists(TOKENS, max_size=9)})
    entries = lambda length, same: numbers if name in ("label", "labels") else st.just({})
    features = data.draw(features_of(entries))
    if name == "None":
        features = [feature | {"labels": None} for feature in features]
    compare("DataCollatorForSeq2Seq", side, features, **options, model=model)


@given(st.data(), SIDES, st.sampled_from([None, 1, 4]), st.sampled_from(["dicts", *CONVERTERS]))
def test_language_modeling(data, side, multiple, kind):
    features = data.draw(features_of(lambda length, same: st.just({})))
    if kind != "dicts":
        features = [CONVERTERS[kind](list(map(int, f["input_ids"]))) for f in features]
    compare(
        "DataCollatorForLanguageModeling", side, features, mlm=False, pad_to_multiple_of=multiple
    )


@given(
    st.data(),
    SIDES,
    st.booleans(),
    st.sampled_from([(0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.5, 0.0)]),
    st.sampled_from(["dicts", "ndarrays", "tensors"]),
)
def test_masked_language_modeling(data, side, has_seed, shares, kind):
    features = data.draw(features_of(lambda length, same: st.just({})))
    if kind != "dicts":
        features = [CONVERTERS[kind](list(map(int, f["input_ids"]))) for f in features]
    tokenizer = tokenizer_of(side, mask_token="<extra_id_0>")
    options = dict(zip(["mask_replace_prob", "random_replace_prob"], shares, strict=True))
    options |= {"mlm_probability": 0.4, "seed": 7 if has_seed else None}
    batches = []
    for module in (transformers, ours):
        torch.manual_seed(0)
        collator = module.DataCollatorForLanguageModeling(tokenizer, **options)
        batches.append([collator(features) for _ in range(2)])
    for expected, batch in zip(*batches, strict=True):
        assert_same_batch(batch, expected)


WORDS = {
    word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"])
}


def test_whole_words_are_masked():
    tokenizer = transformers.BertTokenizer(WORDS)
    texts = ["ab a ab", "a a abb"]
    encoded = tokenizer(texts, return_offsets_mapping=True, return_special_tokens_mask=True)
    features = [{key: entry[i] for key, entry in encoded.items()} for i in range(2)]
    options = {
        "whole_word_mask": True,
        "mask_replace_prob": 1,
        "random_replace_prob": 0,
        "mlm_probability": 0.5,
        "seed": 1,
    }
    expected, batch = (
        module.DataCollatorForLanguageModeling(tokenizer, **options)(features)
        for module in (transformers, ours)
    )
    assert_same_batch(batch, expected)
    assert (batch["labels"] != -100).any()


@given(
    st.data(),
    st.fixed_dictionaries(
        {
            "return_position_ids": st.booleans(),
            "separator_id": st.sampled_from([-100, 7]),
            "return_flash_attn_kwargs": st.booleans(),
            "return_seq_idx": st.booleans(),
            "position_ids_start": st.sampled_from([0, 2]),
        }
    ),
    st.booleans(),
    st.sampled_from([{}, {"separator_id": -1}]),
)
def test_flattening(data, options, has_labels, call):
    def labels(length, same):
        numbers = st.lists(TOKENS, min_size=length, max_size=length)
        return st.fixed_dictionaries({"labels": numbers} if has_labels else {})

    # transformers gives an empty feature a label without a token.
    features = data.draw(features_of(labels, columns=()))
    if data.draw(st.booleans(), "a mask"):
        features = [{**f, "attention_mask": [1] * len(f["input_ids"])} for f in features]
    collators = [module.DataCollatorWithFlattening(**options) for module in (transformers, ours)]
    expected, batch = (collator(features, **call) for collator in collators)
    assert_same_batch(batch, expected)


def test_columns_without_effect_are_dropped():
    features = [
        {
            "input_ids": ids,
            "token_type_ids": [0] * len(ids),
            "special_tokens_mask": [0] * len(ids),
            "position_ids": [*range(len(ids))],
        }
        for ids in ([5, 6, 7], [8], [])
    ]
    expected = transformers.DataCollatorWithFlattening()(features[:2])
    collator = ours.DataCollatorWithFlattening()
    assert_same_batch(collator(features[:2]), expected)
    assert_same_batch(
        collator([{k: np.array(v) for k, v in f.items()} for f in features[:2]]), expected
    )
    columns = {
        key: pinfeed.RaggedArray.from_sequences([feature[key] for feature in features])
        for key in features[0]
    }
    rows = pinfeed.ArrayDataset(columns)
    assert_same_batch(collator(rows.__getitems__([0, 1])), expected)
    for key in ("token_type_ids", "special_tokens_mask", "position_ids"):
        check(lambda key=key: collator([features[0], features[1] | {key: [3]}]), ValueError, key)


SIZES = {
    "vocab_size": 32,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "pad_token_id": 0,
}
DECODER = transformers.LlamaConfig(**SIZES, num_labels=3)

TEXTS = [[3 + (i * j) % 29 for j in range(1 + i % 5)] for i in range(1, 9)]


def trained(kind, config, dataset, collator, folder, **options):
    """Returns the batches that a model gets from transformers' Trainer, and its loss."""
    arguments = arguments_in(folder, max_steps=2, per_device_train_batch_size=3, **options)
    torch.manual_seed(0)
    model, batches = kind(config), []
    model.register_forward_pre_hook(
        lambda _, arguments, batch: batches.append(batch), with_kwargs=True
    )
    trainer = transformers.Trainer(model, arguments, collator, dataset, dataset)
    loss = trainer.train().training_loss
    trainer.evaluate()
    assert len(batches) == 3
    return batches, loss


class WatchedCollate(pinfeed.Collate):
    """A Collate that records whether it received rows; the records of workers are lost."""

    got_rows = None

    def __call__(self, samples):
        self.got_rows = isinstance(samples, pinfeed.Rows)
        return super().__call__(samples)


def assert_same_training(found, expected):
    for batch, original in zip(found[0], expected[0], strict=True):
        assert batch.keys() == original.keys()
        for key, entry in original.items():  # masks can be bool
            assert torch.equal(batch[key].to(entry.dtype), entry), key
    assert found[1] == expected[1]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_transformers_trainer(workers, tmp_path):
    features = [{"input_ids": ids, "labels": ids} for ids in TEXTS]
    expected, actual = (
        trained(
            *(transformers.LlamaForCausalLM, DECODER, features),
            *(module.DataCollatorForSeq2Seq(tokenizer_of()), tmp_path),
            dataloader_num_workers=workers,
        )
        for module in (transformers, ours)
    )
    assert_same_training(actual, expected)


ROWS = {"remove_unused_columns": False}  # otherwise the Trainer makes a list of dicts of them


@pytest.mark.parametrize(
    ("options", "got_rows"),
    [(None, False), ({}, False), (ROWS, True), (ROWS | {"dataloader_num_workers": 2}, None)],
    ids=["dicts", "samples", "rows", "workers"],
)
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_collate_in_transformers_trainer(side, options, got_rows, tmp_path):
    kind, config = transformers.LlamaForCausalLM, DECODER
    features = [{"input_ids": ids, "labels": ids} for ids in TEXTS]
    collator = transformers.DataCollatorForSeq2Seq(tokenizer_of(side), pad_to_multiple_of=8)
    ragged = pinfeed.RaggedArray.from_sequences(TEXTS, dtype=np.uint16)
    dataset = pinfeed.ArrayDataset({"input_ids": ragged, "labels": ragged})
    pad = functools.partial(pinfeed.Pad, side=side, multiple_of=8, dtype=torch.int64)
    fields = {"input_ids": pad(mask="attention_mask"), "labels": pad(pad_value=-100)}
    collate = WatchedCollate(fields)
    result = trained(
        *(kind, config, features if options is None else dataset, collate, tmp_path),
        **options or {},
    )
    assert collate.got_rows is got_rows
    assert_same_training(result, trained(kind, config, features, collator, tmp_path))


def test_a_collate_for_a_model_that_needs_the_mask(tmp_path):
    """Every token of BERT attends to every other."""
    kind, config = transformers.BertForSequenceClassification, transformers.BertConfig(**SIZES)
    features = [{"input_ids": ids, "labels": len(ids) % 2} for ids in TEXTS]
    masked = [feature | {"attention_mask": [1] * len(feature["input_ids"])} for feature in features]
    collator = transformers.DataCollatorWithPadding(tokenizer_of())
    collate = pinfeed.Collate({"input_ids": pinfeed.Pad(pad_value=0, mask="attention_mask")})
    result = trained(kind, config, features, collate, tmp_path)
    assert_same_training(result, trained(kind, config, masked, collator, tmp_path))


IDS = [[5, 6, 7], [8]]
FEATURES = [{"input_ids": ids, "labels": ids} for ids in IDS]
EQUAL = [{"input_ids": [5, 6], "labels": [5, 6]}, {"input_ids": [7, 8], "labels": [7, 8]}]
OTHERS = {"DataCollatorForLanguageModeling": {"mlm": False}, "DataCollatorWithFlattening": None}


def collator_of(name, tokenizer=None, module=ours, **options):
    required = OTHERS.get(name, {})
    arguments = () if required is None else (tokenizer or tokenizer_of(),)
    return getattr(module, name)(*arguments, **(required or {}), **options)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_numpy(name):
    expected = collator_of(name, module=transformers, return_tensors="np")(EQUAL)
    arrays = {key: np.array([feature[key] for feature in EQUAL]) for key in EQUAL[0]}
    for features in EQUAL, pinfeed.ArrayDataset(arrays)[[0, 1]]:
        batch = collator_of(name, return_tensors="np")(features)
        assert batch.keys() == expected.keys()
        for key, entry in expected.items():
            assert type(batch[key]) is type(entry)
            np.testing.assert_array_equal(batch[key], entry)


def test_no_padding():
    for name in ("DataCollatorWithPadding", "DataCollatorForTokenClassification"):
        compare(name, "right", EQUAL, padding=False)
    lists = collator_of("DataCollatorWithPadding", padding=False, return_tensors=None)(FEATURES)
    assert lists["input_ids"] == IDS


def test_a_feature_extractor():
    sounds = [{"input_values": [0.5, 0.25, 0.0]}, {"input_values": [1.0]}]
    extractor = transformers.Wav2Vec2FeatureExtractor()
    expected, batch = (
        module.DataCollatorWithPadding(extractor)(sounds) for module in (transformers, ours)
    )
    assert_same_batch(batch, expected)


@pytest.mark.parametrize(
    "name", ["DataCollatorForTokenClassification", "DataCollatorForLanguageModeling"]
)
def test_overridden_methods_of_a_subclass(name):
    kind = getattr(ours, name)

    class Own(kind):
        def torch_call(self, features):
            return super().torch_call(features[:1])

    assert issubclass(kind, getattr(transformers, name))
    collator = Own(tokenizer_of(), **OTHERS.get(name, {}))
    assert collator(FEATURES)["input_ids"].tolist() == [IDS[0]]

    class Masks(ours.DataCollatorForLanguageModeling):
        def torch_mask_tokens(self, inputs, special_tokens_mask=None, offset_mapping=None):
            return inputs, inputs + 1

    batch = Masks(tokenizer_of(mask_token="<extra_id_0>"))(FEATURES)
    assert batch["labels"].tolist() == [[6, 7, 8], [9, 1, 1]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [transformers.BatchEncoding, "Rows"])
def test_other_features(name, kind):
    features = [
        feature
        if name != "DataCollatorWithPadding"
        else {"input_ids": feature["input_ids"], "labels": i}
        for i, feature in enumerate(FEATURES)
    ]
    collator = collator_of(name)
    expected = collator(features)
    if kind == "Rows":
        columns = {key: [f[key] for f in features] for key in features[0]}
        arrays = {
            key: pinfeed.RaggedArray.from_sequences(c) if isinstance(c[0], list) else np.array(c)
            for key, c in columns.items()
        }
        assert_same_batch(collator(pinfeed.ArrayDataset(arrays).__getitems__([0, 1])), expected)
    else:
        assert_same_batch(collator([kind(feature) for feature in features]), expected)


def test_masks_of_more_axes_are_stacked():
    features = [{"input_ids": [5, 6], "attention_mask": np.eye(2, dtype=np.int64)}] * 2
    compare("DataCollatorWithPadding", "right", features)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["label", "labels"])
def test_labels_of_none(name, key):
    features = [{"input_ids": ids} for ids in IDS]
    expected = collator_of(name)(features)
    assert_same_batch(collator_of(name)([feature | {key: None} for feature in features]), expected)


def test_only_empty_features():
    batch = collator_of("DataCollatorWithPadding", padding="max_length", max_length=3)(
        [{"input_ids": []}] * 2
    )
    assert batch["input_ids"].tolist() == batch["attention_mask"].tolist() == [[0] * 3] * 2
    assert batch["input_ids"].dtype == torch.int64


def test_an_empty_feature_has_no_label():
    features = [{"input_ids": []}, {"input_ids": [5, 6]}]
    batch = ours.DataCollatorWithFlattening(return_flash_attn_kwargs=True)(features)
    assert batch["labels"].tolist() == [[-100, 6]]
    assert batch["cu_seq_lens_q"].tolist() == [0, 0, 2]


def padding(features=FEATURES, tokenizer=None, **options):
    return lambda: collator_of("DataCollatorWithPadding", tokenizer, **options)(features)


def without_padding_token(**options):
    tokenizer = tokenizer_of(**options)
    tokenizer.pad_token = None
    return tokenizer


LOSS_MASKS = ["completion_mask", "assistant_masks", "loss_mask"]
KEPT = [[0, 1, 1], [1]]
TARGETS = {  # of IDS, where KEPT is the mask, or the labels have -100
    "DataCollatorForLanguageModeling": [[-100, 6, 7], [8, -100, -100]],
    "DataCollatorWithFlattening": [[-100, 6, 7, -100]],
}


@pytest.mark.parametrize("kind", [list, np.array, "Rows"])
@pytest.mark.parametrize("key", [*LOSS_MASKS, "labels"])
@pytest.mark.parametrize("name", TARGETS)
def test_tokens_that_do_not_count(name, key, kind):
    labels = [[0, 0, 1], [1]] if key == LOSS_MASKS[0] else KEPT
    if key == "labels":
        labels = [[-100, 6, 7], [8]]
    expected = [
        [-100 if label == 6 and labels[0][1] == 0 else label for label in row]
        for row in TARGETS[name]
    ]
    if kind == "Rows":
        columns = {"input_ids": IDS, key: labels}
        arrays = {k: pinfeed.RaggedArray.from_sequences(c) for k, c in columns.items()}
        features = pinfeed.ArrayDataset(arrays)[[0, 1]]
    else:
        features = [{"input_ids": kind(i), key: kind(k)} for i, k in zip(IDS, labels, strict=True)]
    batch = collator_of(name)(features)
    assert batch["labels"].tolist() == expected
    assert key == "labels" or key not in batch


@pytest.mark.parametrize("kind", [list, torch.tensor])
def test_padding_in_samples_has_no_label(kind):
    features = [
        {"input_ids": kind([5, 6, 9]), "attention_mask": kind([1, 1, 0])},
        {"input_ids": kind([8]), "attention_mask": kind([1])},
    ]
    batch = collator_of("DataCollatorForLanguageModeling")(features)
    assert batch["labels"].tolist() == [[5, 6, -100], [8, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 0, 0]]


COLUMNS = {
    **dict.fromkeys(LOSS_MASKS, KEPT),
    "seq_lengths": [[2, 1], [1]],
    "cu_seqlens": [[0, 2, 3], [0, 1]],
    "document_ids": [[0, 0, 1], [0]],
    "position_ids": [[0, 1, 0], [0]],
    "segment_ids": [[0, 0, 0], [0]],
    "special_tokens_mask": [[1, 0, 1], [1]],
    "loss_weights": [[0.5, 0.5, 0.5], [1.0]],
}


@pytest.mark.parametrize("key", COLUMNS)
@pytest.mark.parametrize("name", [*NAMES, "masked"])
@pytest.mark.parametrize("is_even", [False, True])
def test_no_column_is_lost(name, key, is_even):
    """Each column is used, passed on to the model, or named in an error."""
    options = {}
    if name == "masked":
        tokenizer = tokenizer_of(mask_token="<extra_id_0>")
        name, options = "DataCollatorForLanguageModeling", {"mlm": True}
        collator = ours.DataCollatorForLanguageModeling(tokenizer)
    else:
        collator = collator_of(name)
    samples = [{"input_ids": i, key: c} for i, c in zip(IDS, COLUMNS[key], strict=True)]
    if is_even:  # lists of one length would be stacked
        samples = samples[:1] * 2
    try:
        batch = collator(samples)
    except ValueError as error:
        assert f"'{key}'" in str(error)  # noqa: PT017
        plain = [{"input_ids": sample["input_ids"]} for sample in samples]
        assert collator(plain)["input_ids"].numel() > 0
        assert key not in LOSS_MASKS or name not in TARGETS or options
        return
    applied = key in LOSS_MASKS and name in TARGETS
    unused = key == "special_tokens_mask" and name == "DataCollatorForLanguageModeling"
    passed_on = key in ("special_tokens_mask", "position_ids", "loss_weights")
    assert applied or unused or (passed_on and key in batch)


@pytest.mark.parametrize(
    ("key", "value", "is_lost"),
    [
        *[(key, 1, True) for key in ("source_len", "num_tokens", "prompt_end", "answer_start")],
        *[("importance", 7, True), ("loss_weight", 0.5, True), ("length", np.int64(2), True)],
        *[("length", 3, False), ("num_tokens", 3, False), ("start", 1_700_000_000, False)],
        *[("id", 1, False), ("token_count", 1, None), ("language_score", 0.9, None)],
        *[("prompt_size", 1, True), ("mask_until", 2, True), ("image_size", 2, None)],
        *[("masks", {"loss_mask": [0, 1, 1]}, True), ("parts", [{"start": 0, "end": 2}], True)],
        ("info", {"url": "a", "id": 1, "tags": ["b"]}, False),
        ("messages", [{"role": "user", "content": "c"}], False),
    ],
)
def test_columns_that_mark_tokens_raise(key, value, is_lost):
    collator = collator_of("DataCollatorWithFlattening")
    features = [{"input_ids": [5, 6, 7], key: value}]
    if is_lost:
        with pytest.raises(ValueError, match=f"samples have '{key}'"):
            collator(features)
    elif is_lost is None:
        rows = pinfeed.ArrayDataset({"input_ids": np.array([[5, 6, 7]]), key: np.array([value])})
        for samples in (features, rows.__getitems__([0])):
            with pytest.warns(
                UserWarning, match=rf"^DataColl.*: numbers in \['{key}'\] are ignored"
            ):
                assert collator(samples)["input_ids"].tolist() == [[5, 6, 7]]
    else:
        assert collator(features)["input_ids"].tolist() == [[5, 6, 7]]


TEXT = [feature | {"text": "a"} for feature in FEATURES]

# The call, the error, and words of its message.
BAD = {
    "no features": (padding([]), ValueError, "features: expected at least one sample, got none"),
    "no tokens": (padding([{"ids": [1]}]), ValueError, "expected 'input_ids'", "got ['ids']"),
    "no padding token": (padding(tokenizer=without_padding_token()), ValueError, "tokenizer.pad_token = tokenizer.eos_token"),
    "no largest length": (padding(padding="max_length"), ValueError, "needs max_length"),
    "too long": (padding([{"input_ids": IDS[0]}], padding="max_length", max_length=2),
        ValueError, "at most 2 tokens", "got 3", "truncation=True, max_length=2"),
    "another length": (padding([{"input_ids": [1, 2, 3], "attention_mask": [1]}]),
        ValueError, "attention_mask of feature 0: expected 3 numbers, one for each of input_ids, got 1"),
    "too many labels": (lambda: collator_of("DataCollatorForTokenClassification")([{"input_ids": [1], "labels": IDS[0]}]),
        ValueError, "at most 1 tokens and labels, got 3"),
    "labels of lengths": (padding(), ValueError, "['labels']", "remove_columns()"),
    "text": (padding([{"input_ids": [1], "text": "a"}]), TypeError, "['text']", "remove_columns()"),
    "stored padding": (lambda: collator_of("DataCollatorWithFlattening")([{"input_ids": [1, 0], "attention_mask": [1, 0]}]),
        ValueError, "attention_mask: expected 1 for every token, got 0", "padding=False"),
    "another number of masks": (lambda: collator_of("DataCollatorWithFlattening")([{"input_ids": [1, 2], "loss_mask": [1]}]),
        ValueError, "entry ['loss_mask'] of sample 0: expected length 2 as in ['input_ids'], got 1"),
    "a label of the text": (lambda: collator_of("DataCollatorWithFlattening")([{"input_ids": [1, 2], "labels": 1}]),
        ValueError, "DataCollatorWithFlattening: labels: expected a number for each token, got 1; dataset.remove_columns(['labels'])"),
    "a mask of another length": (lambda: collator_of("DataCollatorForLanguageModeling")([{"input_ids": [1, 2], "loss_mask": [1]}]),
        ValueError, "loss_mask of feature 0: expected 2 numbers"),
    "labels of masked tokens": (lambda: ours.DataCollatorForLanguageModeling(tokenizer_of(mask_token="<extra_id_0>"))([{"input_ids": [1, 2], "labels": [-100, 2]}]),
        ValueError, "labels: expected numbers equal to input_ids", 'remove_columns(["labels"])'),
    "labels that are not tokens'": (lambda: collator_of("DataCollatorWithFlattening")([{"input_ids": [1], "labels": []}]),
        ValueError, "entry ['labels'] of sample 0: expected length 1 as in ['input_ids'], got 0"),
    "equal sums of labels and tokens": (lambda: collator_of("DataCollatorWithFlattening")([{"input_ids": [1, 2], "labels": [1]}, {"input_ids": [1], "labels": [1, 2]}]),
        ValueError, "entry ['labels'] of sample 0: expected length 2 as in ['input_ids'], got 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_features_and_arguments(case):
    check(*BAD[case])


def test_hints_of_errors_work():
    tokenizer = without_padding_token()
    tokenizer.pad_token = tokenizer.eos_token
    ids = [{"input_ids": feature["input_ids"]} for feature in FEATURES]
    assert padding(ids, tokenizer)()["input_ids"].tolist() == [[5, 6, 7], [8, 1, 1]]
    text = tokenizer_of()(["abc"], truncation=True, max_length=2)["input_ids"]
    batch = padding([{"input_ids": text[0]}], padding="max_length", max_length=2)()
    assert batch["input_ids"].shape == (1, 2)
    assert batch["input_ids"].numpy().dtype == np.int64
    dataset = importlib.import_module("datasets").Dataset.from_list(TEXT)
    rows = [*dataset.remove_columns(["text", "labels"])]
    assert padding(rows)()["input_ids"].shape == (2, 3)


def test_sequences_of_one_length_need_no_padding_token():
    collator = collator_of("DataCollatorForLanguageModeling", without_padding_token())
    assert collator([[5, 6], [7, 8]])["labels"].tolist() == [[5, 6], [7, 8]]
    check(lambda: collator(IDS), ValueError, "does not have a pad token")


def test_without_transformers():
    message = run_program("missing_library", "transformers", "pinfeed.integrations.transformers")
    assert "transformers is not installed: pip install '.[transformers]' in a" in message
