/* dropped: reads a file that drop.js was given: an API workflow as JSON, or a PNG that carries
 * one. */
import * as api from './api.js';
import {later} from './later.js';
import {toast} from './toast.js';
import {kindOf} from './workflow.js';

const JSON_MOST = 32 * 2 ** 20;
const MODEL = /\.(safetensors|sft|gguf|ckpt|pth?|bin)$/i;

const UI_HINT = 'It was saved for ComfyUI\'s editor. Open it there, use Workflow → Export (API), ' +
    'and drop that file here.';

async function readPng(file) {
    const {workflowOfPng} = await later('png'); /* few pages ever read one */
    const found = await workflowOfPng(file);
    if (found.prompt === null)
        throw new Error(found.editor ? UI_HINT : 'This picture carries no workflow.');
    return found.prompt;
}

const WANTED = 'An API workflow (.json) or a PNG that carries one is wanted here.';

/* The folder of checkpoints, as the server says; '' when it says none. */
async function homeOfModels() {
    try {
        const folders = (await api.get('/experiment/models')) || [];
        return folders.find((f) => f.name === 'checkpoints')?.folders[0] || '';
    } catch {
        return '';
    }
}

async function refuseModel() {
    const home = await homeOfModels();
    throw new Error(`This is a model. ${WANTED} Models are files on the server${
        home ? `: checkpoints go to ${home}, others beside it` : ''}.`);
}

/* The graph in a text; a whole request ({"prompt": graph}) will do, too. */
function readGraph(text, name = 'x.json') {
    let value;
    try {
        value = api.parse(text);
    } catch (e) {
        throw new Error(/\.json$/i.test(name) ? `This is no JSON: ${e.message}` : WANTED);
    }
    const kind = kindOf(value);
    if (kind === 'api')
        return value;
    if (kindOf(value?.prompt) === 'api')
        return value.prompt;
    throw new Error(kind === 'ui' ?
            UI_HINT :
            'This JSON is no workflow: nodes with a class_type were expected.');
}

async function readFile(file) {
    const start = new Uint8Array(await file.slice(0, 4).arrayBuffer());
    if (start[0] === 137 && start[1] === 80)
        return readGraph(await readPng(file));
    if (/^image\//.test(file.type))
        throw new Error('Only PNG pictures carry a workflow.');
    if (MODEL.test(file.name))
        await refuseModel();
    if (file.size > JSON_MOST)
        throw new Error(`The file is too large for a workflow. ${WANTED}`);
    return readGraph(await file.text(), file.name);
}

export async function take(file) {
    try {
        const graph = await readFile(file);
        (await later('workflowview')).openWorkflow(graph, file.name || 'Dropped file');
    } catch (e) {
        toast('error', file.name || 'Dropped file', e.message);
    }
}
