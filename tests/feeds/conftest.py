from support.person import person

__all__ = ["person"]
