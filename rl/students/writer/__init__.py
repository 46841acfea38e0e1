"""The student of the paper: a language policy that writes whole plans, taught at first, then trained by GRPO."""

from rl.students.writer.student import PlanWriter, Writer, WriterStudent, load_writer

__all__ = ["PlanWriter", "Writer", "WriterStudent", "load_writer"]
