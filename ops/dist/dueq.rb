class Dueq < Formula
  desc "@DESCRIPTION@"
  homepage "@REPOSITORY@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

@PLATFORMS@
  def install
    bin.install "bin/dueq"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/dueq"
    zsh_completion.install "share/zsh/vendor-completions/_dueq"
    fish_completion.install "share/fish/vendor_completions.d/dueq.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/dueq --version")
  end
end
