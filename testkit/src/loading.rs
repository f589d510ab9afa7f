//! Makes a server load its data for a long time, and meanwhile answer `LOADING`.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{START_LIMIT, Server, answers, command, spawn};

impl Server {
    /// Restarts the server with its data. Loading takes more than half a minute, in which the
    /// server answers `LOADING`, unless [`finish_loading`](Server::finish_loading) ends it.
    pub fn restart_loading(&mut self) -> Result<()> {
        // While loading, the server handles commands after each KiB of the file, so every 10 ms.
        let keys =
            "for n = 1, 40000 do redis.call('SET', 'filler:' .. n, string.rep('x', 100)) end";
        self.command(&["EVAL", keys, "0"])?;
        let saved = self.command(&["SAVE"])?;
        if !saved.starts_with("+OK") {
            bail!("SAVE: {saved}");
        }
        self.kill()?;
        let mut arguments = self.arguments.clone();
        let slowly = "--key-load-delay 1000 --loading-process-events-interval-bytes 1024";
        arguments.extend(slowly.split(' ').map(str::to_owned));
        let port = self.port();
        self.child = spawn(
            &self.program,
            port,
            &self.folder,
            &arguments,
            &self.environment,
        )?;
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            let reply = command(port, &["PING"]).unwrap_or_default();
            if reply.starts_with("-LOADING") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("{} does not load", self.program.display())
    }

    /// Makes the server load the rest of its data at once, and waits until it serves.
    pub fn finish_loading(&mut self) -> Result<()> {
        self.command(&["CONFIG", "SET", "key-load-delay", "0"])?;
        if !answers(self.port.number(), &mut self.child)? {
            bail!("{} ended while it loaded", self.program.display());
        }
        let keys = "for n = 1, 40000 do redis.call('DEL', 'filler:' .. n) end";
        self.command(&["EVAL", keys, "0"])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_answers_loading_until_finish_loading() -> Result<()> {
        let mut server = Server::start(&[])?;
        server.command(&["SET", "key", "value"])?;
        server.restart_loading()?;
        let reply = server.command(&["GET", "key"])?;
        assert!(reply.starts_with("-LOADING"), "{reply}");
        server.finish_loading()?;
        assert_eq!(server.command(&["GET", "key"])?, "value");
        assert_eq!(server.command(&["DBSIZE"])?, ":1\r\n");
        Ok(())
    }
}
