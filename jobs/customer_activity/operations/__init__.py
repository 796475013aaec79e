"""Operations that somebody asks for: recovery and migration."""
