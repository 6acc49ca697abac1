/* clips: files of video and sound among what prompts leave, by the endings of their names. */
import {el} from './dom.js';

const VIDEO = /\.(mp4|m4v|mov|webm|mkv|ogv)$/i;
const SOUND = /\.(flac|mp3|opus|ogg|oga|wav|m4a|weba)$/i;

/* 'video', 'sound' or 'picture'. */
export const kindOf = (name) =>
    VIDEO.test(name) ? 'video' : SOUND.test(name) ? 'sound' : 'picture';

/* Keys of outputs whose items are shown. */
export const SHOWN = ['images', 'gifs', 'video', 'audio'];

/* The first frame of a clip, for cards and thumbnails: nothing else of it is fetched. */
export const still = (src) =>
    el('video', {src, muted: true, preload: 'metadata', playsinline: true, tabindex: '-1'});
