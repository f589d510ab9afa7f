//! Single messages and lists of them.

mod ended_leases;
mod keys;
mod pages;
mod payloads;
mod pushes;
mod single;
