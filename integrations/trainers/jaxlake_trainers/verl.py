"""The face that verl sees: a dataset whose rows an engineer designs, for ``data.custom_cls``."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from verl import DataProto
from verl.utils.dataset.rl_dataset import RLHFDataset

from jaxlake.adapters.text import DATA_SOURCE
from jaxlake_trainers.boards import Board, curriculum_from_file
from jaxlake_trainers.curriculum import EngineerCurriculum, Task


class EngineerDataset(RLHFDataset):
    """verl's dataset, which draws its rows by an engineer where ``data.train_files`` is a curriculum's YAML file.

    Batches are reported, by ``on_batch_end``, where ``trainer.use_v1=False``: verl's v1 trainer reports none.

    Any other file is read as by ``RLHFDataset``: ``data.val_files`` are Parquet, from
    ``jaxlake.adapters.text.verl_rows``. An epoch has as many rows as a round has tasks. Which index is asked for does
    not matter: the next row is the next task.

    verl reports a batch after it has saved the dataset's state: of a run that is resumed the answers of its last batch
    are missing from the evidence, and nothing else.

    Raises:
      ValueError: if verl's workers would copy the curriculum, naming the setting.
      RuntimeError: when a third round of rows is asked for and nothing was reported.
    """

    def _read_files_and_tokenize(self) -> None:
        self.curriculum = None
        if not str(self.data_files[0]).endswith((".yaml", ".yml")):
            super()._read_files_and_tokenize()
            return
        if workers := self.config.get("dataloader_num_workers", 8):  # verl's default
            raise ValueError(f"data.dataloader_num_workers = {workers} must be 0: rows follow from the answers")
        self.curriculum = curriculum_from_file(self.data_files[0])
        self.dataframe = _Rows(self.curriculum)

    def on_batch_end(self, batch: DataProto) -> None:
        """Count a batch's answers, group by group, as verl's trainer hands it over after the update."""
        tensors, columns = batch.batch, batch.non_tensor_batch
        written = tensors["response_mask"].bool()
        lengths = written.sum(-1).tolist()
        rewards = tensors["token_level_scores"].sum(-1).tolist()
        groups = defaultdict(list)
        for row, group in enumerate(columns["uid"]):
            groups[group].append(row)
        for rows in groups.values():
            extra, level = columns["extra_info"][rows[0]], columns["reward_model"][rows[0]]["ground_truth"]
            texts = (self.tokenizer.decode(tensors["responses"][i][written[i]], skip_special_tokens=True) for i in rows)
            self.curriculum.observe(
                [Task(extra["index"], extra["kind"], Board("", level, ""))],
                [[rewards[i] for i in rows]],
                answers=[[*texts]],
                tokens=[[lengths[i] for i in rows]],
                truncated=[[lengths[i] >= self.config.max_response_length for i in rows]],
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the curriculum's state, plain JSON values; of rows from a file there is none."""
        return self.curriculum.state_dict() if self.curriculum else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a state of ``state_dict``; ValueError for one that is damaged or of another curriculum."""
        if self.curriculum:
            self.curriculum.load_state_dict(state_dict)


class _Rows:
    """A curriculum as the table of rows that ``RLHFDataset`` reads."""

    def __init__(self, curriculum: EngineerCurriculum) -> None:
        self._curriculum = curriculum

    def __len__(self) -> int:
        return self._curriculum.tasks_per_round

    def __getitem__(self, index: int) -> dict[str, Any]:
        (task,) = self._curriculum.sample(1)
        if task.index >= 2 * len(self) and not self._curriculum.history:
            raise RuntimeError(
                "verl has reported no batch in two rounds: trainer.use_v1 must be False, as v1 reports none"
            )
        return {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": "user", "content": task.content.prompt}],
            "ability": "planning",
            "reward_model": {"style": "rule", "ground_truth": task.content.level},
            "extra_info": {"split": "train", "index": task.index, "kind": task.kind},
        }
