// Requests to the server that this page came from.

export class ServerError extends Error {}

export async function get(path, headers) {
  const response = await fetch(path, { headers });
  if (!response.ok) throw await errorOf(response);
  return response.json();
}

async function errorOf(response) {
  let error = { message: `The server answered with status ${response.status}.` };
  try {
    error = (await response.json()).error ?? error;
  } catch {
    // not from this server's own code: the status is all there is to tell
  }
  return Object.assign(new ServerError(error.message), { status: response.status, details: error });
}

// The chunks of a streamed answer, as they come.
export async function* chunks(path, body, headers, signal) {
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!response.ok) throw await errorOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new ServerError("The server closed the connection before the answer was complete.");
    const events = (waiting + value).split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ")) continue;
      const data = event.slice("data: ".length);
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw Object.assign(new ServerError(chunk.error.message), { details: chunk.error });
      yield chunk;
    }
  }
}
