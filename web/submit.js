/* submit: a workflow into the queue. */
import * as api from './api.js';
import {loadQueue} from './data.js';
import {clientId} from './socket.js';

/* Resolves to the server's answer; throws ApiError, whose body has node_errors. Previews are asked
 * for: this page shows them. */
export async function submit(graph) {
    const answer = await api.post('/prompt',
        {prompt: graph, client_id: clientId, extra_data: {preview_method: 'latent2rgb'}});
    loadQueue();
    return answer;
}
