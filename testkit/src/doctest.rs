//! Runs the examples of the library's documentation.

/// Runs an example as `async` code on a server of its own. `?` works in it for any error.
///
/// The names between the bars become variables: `client` (connected), `orders` (a queue),
/// `delivery` (a claimed message of `orders` with the id `order:42` and the payload `42`) and
/// `worker` (a handle of a running worker of `orders`).
///
/// The crate that has the example needs the dependencies `dueq` and `tokio`.
#[macro_export]
macro_rules! doctest {
    (|$($name:ident),*| { $($example:tt)* }) => {
        let server = $crate::Server::start(&[]).expect("a server");
        let example = async {
            let connected = ::dueq::Client::connect(&server.url()).await?;
            $(let $name = $crate::doctest!(@$name connected);)*
            $($example)*
            Ok::<(), Box<dyn ::std::error::Error + Send + Sync>>(())
        };
        let runtime = ::tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(example).expect("the example succeeds");
    };
    (@client $client:ident) => { $client.clone() };
    (@orders $client:ident) => { $client.queue("orders")? };
    (@delivery $client:ident) => {{
        let orders = $client.queue("orders")?;
        orders.push("42").id("order:42").await?;
        let claim = || orders.claim(1, ::std::time::Duration::from_secs(60));
        loop {
            // The message is due from the next millisecond on.
            if let Some(delivery) = claim().await?.pop() {
                break delivery;
            }
        }
    }};
    (@worker $client:ident) => {
        $client.worker().queue(&$client.queue("orders")?, |_: ::dueq::Delivery| async {}).spawn()
    };
}
