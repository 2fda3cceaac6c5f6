"""The parts of the splicing article, each shown on the flights of a year."""
