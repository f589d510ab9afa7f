//! The servers of a cluster: some masters, each with an equal part of the slots, and their
//! replicas.

use anyhow::{Context, Result};
use redis::FromRedisValue;

use super::SlotMove;
use crate::Server;

/// A running cluster, stopped on drop.
#[derive(Debug)]
pub struct Cluster {
    /// The masters, followed by the replicas.
    pub masters: Vec<Server>,
    /// Further arguments of each server.
    options: Vec<String>,
}

impl Cluster {
    /// Starts this number of masters, and waits until each serves its slots and knows the others.
    pub async fn start(masters: usize) -> Result<Self> {
        Self::start_with(masters, &[]).await
    }

    /// Like `start`, with further arguments for each server.
    pub async fn start_with(masters: usize, options: &[&str]) -> Result<Self> {
        let mut started = Self {
            masters: Vec::new(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
        };
        for _ in 0..masters {
            let server = started.server()?;
            started.masters.push(server);
        }
        super::form(&started.ports()).await?;
        Ok(started)
    }

    fn server(&self) -> Result<Server> {
        let own = self.options.iter().map(String::as_str);
        let arguments: Vec<&str> = super::OPTIONS.into_iter().chain(own).collect();
        Server::start(&arguments)
    }

    fn ports(&self) -> Vec<u16> {
        self.masters.iter().map(Server::port).collect()
    }

    /// Starts a replica of a master, as the last server, and waits until it follows.
    pub async fn add_replica(&mut self, master: usize) -> Result<()> {
        let (others, replica) = (self.ports(), self.server()?);
        let port = replica.port();
        self.masters.push(replica);
        super::join(&others, port).await?;
        super::replicate(&others, others[master], port).await
    }

    /// The URL of one master, which leads to the others.
    pub fn url(&self) -> String {
        self.masters[0].url()
    }

    /// Sends one command to a master.
    pub async fn command<T: FromRedisValue>(&self, master: usize, words: &[&str]) -> Result<T> {
        super::command(self.masters[master].port(), words).await
    }

    /// The slot of a queue, and the index of the master that serves it.
    pub async fn place(&self, queue: &str) -> Result<(u16, usize)> {
        let port = self.masters[0].port();
        let slot = super::slot(port, &format!("dueq:{{{queue}}}:meta")).await?;
        let owner = super::owner(port, slot).await?;
        let mut masters = self.masters.iter();
        let owner = masters.position(|server| server.port() == owner);
        Ok((slot, owner.context("it is a master of this cluster")?))
    }

    fn to_move(&self, slot: u16, from: usize, to: usize) -> SlotMove {
        let (from, to) = (self.masters[from].port(), self.masters[to].port());
        SlotMove { slot, from, to }
    }

    /// Begins to move a slot, key by key: both masters know it, and no key has moved.
    pub async fn begin_move(&self, slot: u16, from: usize, to: usize) -> Result<()> {
        self.to_move(slot, from, to).begin().await
    }

    /// Moves the keys of a slot, and then gives it to the other master.
    pub async fn finish_move(&self, slot: u16, from: usize, to: usize) -> Result<()> {
        self.to_move(slot, from, to).finish().await
    }
}
