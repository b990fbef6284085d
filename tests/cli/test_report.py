"""`folklearn report` and `export`: a page about a model, rows or predictions; a model as ONNX."""

import re

import pytest

from folklearn import load
from folklearn.model.export import make_onnx

TARGET = ["--target", "kind"]


def headings(path):
    return re.findall(r"<h[12]>(.*?)</h[12]>", path.read_text(encoding="utf-8"))


def test_rows_are_learned_and_reported(folklearn, pets, tmp_path):
    report = tmp_path / "report.html"
    outcome = folklearn("report", pets, *TARGET, "-o", report)
    assert outcome.code == 0
    assert f"Wrote the report to {report}." in outcome.stderr
    assert headings(report)[0] == f"Report on {pets}"
    assert "Columns and their weights" in headings(report)


def test_a_saved_model_is_reported(folklearn, pets, tmp_path):
    model, report = tmp_path / "pets.model", tmp_path / "report.html"
    assert folklearn("run", pets, *TARGET, "--learner", "folklore", "--save", model).code == 0
    assert folklearn("report", model, "-o", report, "--quiet").code == 0
    assert headings(report)[:2] == ["Report on pets.model", "In short"]


def test_a_saved_model_is_exported(folklearn, refusal, pets, tmp_path):
    pytest.importorskip("onnx", reason="needs the extra onnx")
    model, onnx = tmp_path / "pets.model", tmp_path / "pets.onnx"
    assert folklearn("run", pets, *TARGET, "--save", model).code == 0
    outcome = folklearn("export", model, "-o", onnx)
    assert f"Wrote the model to {onnx}." in outcome.stderr
    assert onnx.read_bytes() == make_onnx(load(model))
    assert "would replace the input" in refusal("export", model, "-o", model)


def test_predictions_are_audited_in_a_document(folklearn, pets, tmp_path):
    preds, report = tmp_path / "preds.csv", tmp_path / "report.html"
    assert folklearn("run", pets, *TARGET, "--learner", "ogd", "-p", preds).code == 0
    outcome = folklearn("report", pets, *TARGET, "-p", preds, "-o", report)
    assert outcome.code == 0
    text = report.read_text(encoding="utf-8")
    assert headings(report)[0] == "Audit of preds.csv"
    assert "Lower bound: every fixed linear model of the columns" in text
    assert "In hindsight: a logistic regression of the columns" in text
    assert "lower bound for linear models with their penalty" in text


def test_refusals(folklearn, refusal, pets, tmp_path):
    model = tmp_path / "pets.model"
    folklearn("run", pets, *TARGET, "--learner", "folklore", "--save", model)
    assert "not for a saved model" in refusal("report", model, *TARGET)
    assert "it would replace the input" in refusal("report", pets, *TARGET, "-o", pets)
    assert "No such file" in refusal("report", tmp_path / "none")
    assert "which column" in refusal("report", pets).lower()


@pytest.mark.parametrize("name", ["<script>.csv", "a & b.csv"])
def test_the_name_of_a_file_is_no_tag(folklearn, write_csv, rows, tmp_path, name):
    data = write_csv(name, rows)
    report = tmp_path / "report.html"
    assert folklearn("report", data, *TARGET, "-o", report, "--quiet").code == 0
    text = report.read_text(encoding="utf-8")
    assert "<script" not in text
    assert name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in text
